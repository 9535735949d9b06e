// Ctrl-C and SIGTERM: ask the run to stop after its step. A second one ends the program at once.
#pragma once

namespace stowage::samples {

// Installs the handler; from then on `interrupted` tells whether one came.
void watch_interrupts();
bool interrupted();

}  // namespace stowage::samples
