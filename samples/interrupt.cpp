#include "samples/interrupt.h"

#include <csignal>

namespace stowage::samples {
namespace {

volatile std::sig_atomic_t pressed = 0;  // the first signal

void note(int signal) {
  if (pressed == 0) pressed = signal;
}

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

std::string interrupted_by() {
  switch (pressed) {
    case 0:
      return "";
    case SIGINT:
      return "Ctrl-C";
    case SIGTERM:
      return "SIGTERM";
    case SIGHUP:
      return "SIGHUP (its terminal was closed)";
    default:
      return "SIGPIPE (nobody reads its output)";
  }
}

}  // namespace stowage::samples
