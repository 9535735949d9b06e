#include "tools/console/interrupt.h"

#include <atomic>
#include <csignal>

#include "src/base/temporary.h"

namespace stowage {
namespace {

std::atomic<int> pressed = 0;  // the first signal; other threads read it too
static_assert(std::atomic<int>::is_always_lock_free);

void note(int signal) {
  // The next such signal ends the program.
  if (signal == SIGINT || signal == SIGTERM) std::signal(signal, end_by_signal);
  int none = 0;
  pressed.compare_exchange_strong(none, signal);
}

}  // namespace

void watch_interrupts() {
  struct sigaction action = {};
  action.sa_handler = note;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  ::sigaction(SIGPIPE, &action, nullptr);
  struct sigaction before = {};
  ::sigaction(SIGHUP, nullptr, &before);
  if (before.sa_handler != SIG_IGN) ::sigaction(SIGHUP, &action, nullptr);
}

bool interrupted() { return pressed != 0; }

int interrupt_signal() { return pressed; }

void count_as_interrupted(int signal) {
  int none = 0;
  pressed.compare_exchange_strong(none, signal);
}

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

}  // namespace stowage
