#include "allocator/interpose/process.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "allocator/interpose/cached.h"
#include "allocator/interpose/captures.h"
#include "allocator/interpose/driver.h"
#include "allocator/interpose/places.h"
#include "allocator/interpose/service.h"

namespace stowage::interpose {
namespace {

std::optional<std::uint64_t> number_in_environment(const char* name) {
  const char* const text = std::getenv(name);
  if (text == nullptr || *text == '\0') return std::nullopt;
  char* end = nullptr;
  errno = 0;
  const unsigned long long number = std::strtoull(text, &end, 10);
  if (errno == 0 && end != text && *end == '\0' && *text != '-') return number;
  std::fprintf(stderr, "stowage: %s is no number; it is passed over\n", name);
  return std::nullopt;
}

const char* text_in_environment(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? "" : text;
}

void before_fork() {
  places().before_fork();
  service().before_fork();
  spill().before_fork();
  captures().before_fork();
  ledger().before_fork();
}

void after_fork_in_parent() {
  ledger().after_fork_in_parent();
  captures().after_fork_in_parent();
  spill().after_fork_in_parent();
  service().after_fork_in_parent();
  places().after_fork();
}

void after_fork_in_child() {
  ledger().after_fork_in_child();
  captures().after_fork_in_child();
  spill().after_fork_in_child();
  service().after_fork_in_child();
  places().after_fork();
}

__attribute__((destructor)) void finish() { ledger().end(); }

using ExitFunction = void(int);
ExitFunction* next_exit = nullptr;      // the next library's _exit
ExitFunction* next_std_exit = nullptr;  // the next library's _Exit

__attribute__((constructor)) void begin() {
  const int saved = errno;
  next_exit = reinterpret_cast<ExitFunction*>(real_dlsym(RTLD_NEXT, "_exit"));
  next_std_exit = reinterpret_cast<ExitFunction*>(real_dlsym(RTLD_NEXT, "_Exit"));
  ledger().announce();
  std::at_quick_exit(finish);
  pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  errno = saved;
}

// A process may leave without any destructor. This function may be called in a signal handler, or in a child
// of vfork.
[[noreturn]] void leave(ExitFunction* function, int status) {
  ledger().try_end();
  if (function != nullptr) function(status);
  while (true) syscall(SYS_exit_group, status);
}

}  // namespace

LedgerOptions options_of_environment() {
  LedgerOptions options;
  options.limit = number_in_environment("STOWAGE_RUN_LIMIT").value_or(options.limit);
  options.record = text_in_environment("STOWAGE_RUN_RECORD");
  options.every_call = std::string_view(text_in_environment("STOWAGE_RUN_DETAIL")) == "calls";
  options.pending = text_in_environment("STOWAGE_RUN_PENDING");
  options.start_ns = number_in_environment("STOWAGE_RUN_START").value_or(0);
  options.program = program_invocation_short_name;
  return options;
}

Ledger& ledger() {
  static Ledger& only = *new Ledger(options_of_environment());  // outlives every thread
  return only;
}

Spill& spill() {
  static Spill& only = *new Spill(number_in_environment("STOWAGE_RUN_SPILL").value_or(0));
  return only;
}

Service& service() {
  static Service& only = *(std::string_view(text_in_environment("STOWAGE_RUN_CACHE")) == "1"
                               ? static_cast<Service*>(new Cached(ledger().limit()))
                               : new PassThrough);
  return only;
}

std::optional<ProgramMemory> program_memory(CUdeviceptr address) {
  const auto spilled = spill().find(address);
  return spilled ? spilled : service().find(address);
}

}  // namespace stowage::interpose

// NOLINTBEGIN(readability-identifier-naming,bugprone-reserved-identifier)
extern "C" {
void _exit(int status) { stowage::interpose::leave(stowage::interpose::next_exit, status); }
void _Exit(int status) noexcept { stowage::interpose::leave(stowage::interpose::next_std_exit, status); }
}
// NOLINTEND(readability-identifier-naming,bugprone-reserved-identifier)
