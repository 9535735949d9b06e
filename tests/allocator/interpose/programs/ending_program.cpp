// Allocates, and ends in the ways that its arguments say, one after the other.
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cctype>
#include <csignal>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "tests/allocator/interpose/programs/driver_calls.h"

namespace {

void allocate_times(int times) {
  for (int i = 0; i < times; ++i) allocate(16);
}

void allocate_in_threads() {
  std::vector<std::thread> all;
  for (int i = 0; i < 4; ++i) all.emplace_back([] { allocate_times(100); });
  for (std::thread& thread : all) thread.join();
}

void close_all() {
  for (int file = 3; file < 1024; ++file) close(file);
}

// No file can be opened any more.
void use_up_descriptors() {
  const rlimit few{3, 3};
  setrlimit(RLIMIT_NOFILE, &few);
}

void leave_the_folders() { require(chroot("/proc/self/fdinfo") == 0, "root may"); }

// This program again, with the arguments that are left.
void replace(char** arguments, bool with_environment) {
  static char program[] = "/proc/self/exe";
  char* nothing[] = {nullptr};
  std::vector<char*> words{program};
  for (; *arguments != nullptr; ++arguments) words.push_back(*arguments);
  words.push_back(nullptr);
  if (with_environment)
    execv(program, words.data());
  else
    execve("/bin/true", words.data(), nothing);
}

// The child does what stands before "parent"; the parent waits for it, and goes on behind.
void fork_here(char**& arguments, bool waits) {
  const pid_t child = fork();
  if (child == 0) return;
  if (waits) waitpid(child, nullptr, 0);
  while (*arguments != nullptr && std::string(*arguments) != "parent") ++arguments;
  if (*arguments != nullptr) ++arguments;
}

const std::map<std::string, std::function<void()>> ways = {
    {"segv", [] { *static_cast<volatile int*>(nullptr) = 1; }},
    {"kill", [] { kill(getpid(), SIGKILL); }},
    {"term", [] { raise(SIGTERM); }},
    {"abort", [] { std::abort(); }},
    {"trap", [] { __builtin_trap(); }},
    {"_exit", [] { _exit(0); }},
    {"exit_group", [] { syscall(SYS_exit_group, 0); }},
    {"quick_exit", [] { std::quick_exit(0); }},
    {"exit_at_segv", [] { std::signal(SIGSEGV, [](int) { _exit(0); }); }},
    {"close_all", close_all},
    {"no_descriptors", use_up_descriptors},
    {"no_folders", leave_the_folders},
    {"threads", allocate_in_threads},
    {"sleep", [] { usleep(900'000); }},
    {"parent", [] { std::exit(0); }},  // the child's end
};

}  // namespace

int main(int, char** arguments) {
  for (++arguments; *arguments != nullptr;) {
    const std::string word = *arguments++;
    if (std::isdigit(static_cast<unsigned char>(word.front())) != 0) {
      allocate_times(std::stoi(word));
    } else if (word == "exec" || word == "exec_bare") {
      replace(arguments, word == "exec");
    } else if (word == "fork" || word == "spawn") {
      fork_here(arguments, word == "fork");
    } else {
      const auto way = ways.find(word);
      require(way != ways.end(), "the argument is known");
      way->second();
    }
  }
  return 0;
}
