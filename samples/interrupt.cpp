#include "samples/interrupt.h"

#include <csignal>

namespace stowage::samples {
namespace {

volatile std::sig_atomic_t pressed = 0;

void note(int) { pressed = 1; }

}  // namespace

void watch_interrupts() {
  struct sigaction action = {};
  action.sa_handler = note;
  // The default comes back after the first, so that the second kills.
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

bool interrupted() { return pressed != 0; }

}  // namespace stowage::samples
