// Ctrl-C and SIGTERM: ask the run to stop after its step. A second one ends the program at once. A terminal
// that is closed (SIGHUP, unless it is ignored as under nohup) and a pipe that nobody reads any more
// (SIGPIPE) ask for the same, any number of times.
#pragma once

namespace stowage::samples {

// Installs the handler; from then on `interrupted` tells whether one came.
void watch_interrupts();
bool interrupted();

}  // namespace stowage::samples
