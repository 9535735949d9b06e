// Ctrl-C and SIGTERM: ask the run to stop after its step. A second one ends the program at once. A terminal
// that is closed (SIGHUP, unless it is ignored as under nohup) and a pipe that nobody reads any more
// (SIGPIPE) also ask the run to stop, any number of times. Before the first step all these signals end the
// program (underway.h).
#pragma once

#include <string>

namespace stowage {

inline constexpr int interrupted_code = 130;  // the program's exit code after an interrupt

// Installs the handler; from then on `interrupted` says whether a signal came.
void watch_interrupts();
bool interrupted();
// Returns the first signal that came, for people: "Ctrl-C", "SIGTERM", "SIGHUP (its terminal was closed)" or
// "SIGPIPE (nobody reads its output)"; "" where none came.
std::string interrupted_by();
int interrupt_signal();  // returns the number of the first signal that came; 0 if none did
// Behaves from then on as if that signal had come, unless another has.
void count_as_interrupted(int signal);

}  // namespace stowage
