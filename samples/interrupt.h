// Ctrl-C: asks the run to stop after its step. A second one ends the program at once.
#pragma once

namespace stowage::samples {

// Installs the handler; from then on `interrupted` tells whether Ctrl-C was pressed.
void watch_interrupts();
bool interrupted();

}  // namespace stowage::samples
