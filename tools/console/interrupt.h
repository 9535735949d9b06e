// Ctrl-C and SIGTERM: ask the run to stop after its step. A second one ends the program at once. A terminal
// that is closed (SIGHUP, unless it is ignored as under nohup) and a pipe that nobody reads any more
// (SIGPIPE) ask for the same, any number of times. Before the first step they end the program (underway.h).
#pragma once

#include <string>

namespace stowage {

inline constexpr int interrupted_code = 130;  // the program's exit code where one came

// Installs the handler; from then on `interrupted` says whether a signal came.
void watch_interrupts();
bool interrupted();
// Returns the first signal that came, for people: "Ctrl-C", "SIGTERM", "SIGHUP (its terminal was closed)" or
// "SIGPIPE (nobody reads its output)"; "" where none came.
std::string interrupted_by();
int interrupt_signal();  // that signal's number; 0 where none came
// Behaves as if that signal had come, unless one has.
void count_as_interrupted(int signal);

}  // namespace stowage
