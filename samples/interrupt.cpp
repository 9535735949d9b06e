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
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGPIPE, &action, nullptr);
  struct sigaction before = {};
  ::sigaction(SIGHUP, nullptr, &before);
  if (before.sa_handler != SIG_IGN) ::sigaction(SIGHUP, &action, nullptr);
}

bool interrupted() { return pressed != 0; }

}  // namespace stowage::samples
