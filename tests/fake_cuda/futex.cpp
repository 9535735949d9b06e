#include "tests/fake_cuda/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "tests/fake_cuda/state.h"

namespace fake_cuda {

void sleep_while(const FutexWord& word, std::uint32_t value) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}

void sleep_patiently_while(const FutexWord& word, std::uint32_t value, const char* message) {
  const unsigned patience = State::get().patience_in_milliseconds.load(std::memory_order_relaxed);
  const timespec timeout{patience / 1000, static_cast<long>(patience % 1000) * 1'000'000};
  const long result = syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, &timeout, nullptr, 0);
  if (result == 0 || errno != ETIMEDOUT || word.load(std::memory_order_relaxed) != value) return;
  std::fprintf(stderr, "fake CUDA: nothing has happened for %u ms: %s\n", patience, message);
  std::abort();
}

void wake_all(FutexWord& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace fake_cuda
