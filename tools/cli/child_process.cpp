#include "tools/cli/child_process.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>

#include "stowage/error.h"

namespace stowage {
namespace {

constexpr std::array passed_on = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

volatile pid_t child = 0;  // written while the signals are blocked

void pass_on(int signal, siginfo_t* info, void*) {
  // Signals from the kernel reach the whole foreground group anyway.
  const int saved = errno;
  if (info->si_code <= 0 && child > 0) kill(child, signal);
  errno = saved;
}

// While an object lives, signals that were not ignored are passed on to `child`.
class PassingSignals {
 public:
  PassingSignals() {
    struct sigaction action {};
    action.sa_sigaction = pass_on;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    for (std::size_t i = 0; i < passed_on.size(); ++i) {
      sigaction(passed_on[i], nullptr, &before_[i]);
      if (before_[i].sa_handler != SIG_IGN) sigaction(passed_on[i], &action, nullptr);
    }
  }
  ~PassingSignals() {
    for (std::size_t i = 0; i < passed_on.size(); ++i) sigaction(passed_on[i], &before_[i], nullptr);
  }
  PassingSignals(const PassingSignals&) = delete;
  PassingSignals& operator=(const PassingSignals&) = delete;

 private:
  std::array<struct sigaction, passed_on.size()> before_{};
};

std::vector<std::string> environment_with(const std::vector<std::pair<std::string, std::string>>& variables) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    bool replaced = false;
    for (const auto& [name, value] : variables)
      replaced = replaced || (text.starts_with(name) && text.substr(name.size()).starts_with('='));
    if (!replaced) result.emplace_back(text);
  }
  for (const auto& [name, value] : variables) result.push_back(name + "=" + value);
  return result;
}

std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

pid_t spawn(const std::vector<std::string>& words, const std::vector<std::string>& environment,
            const sigset_t& mask) {
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  posix_spawnattr_setsigmask(&attributes, &mask);
  pid_t started = 0;
  const int error = posix_spawnp(&started, words.front().c_str(), nullptr, &attributes,
                                 pointers_to(words).data(), pointers_to(environment).data());
  posix_spawnattr_destroy(&attributes);
  if (error != 0) {
    throw InvalidInput(fmt::format("run: '{}' cannot be started ({}); name a program that can", words.front(),
                                   std::strerror(error)));
  }
  return started;
}

}  // namespace

ChildEnd run_child(const std::vector<std::string>& words,
                   const std::vector<std::pair<std::string, std::string>>& variables) {
  const std::vector<std::string> environment = environment_with(variables);
  sigset_t all, before;
  sigfillset(&all);
  const PassingSignals passing;
  sigprocmask(SIG_BLOCK, &all, &before);
  try {
    child = spawn(words, environment, before);
  } catch (...) {
    sigprocmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  sigprocmask(SIG_SETMASK, &before, nullptr);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  child = 0;
  if (WIFSIGNALED(status)) return {true, WTERMSIG(status)};
  return {false, WEXITSTATUS(status)};
}

int end_as(const ChildEnd& end) {
  if (!end.by_signal) return end.number;
  std::fflush(nullptr);
  const rlimit none{0, 0};  // the program has left its core dump already
  setrlimit(RLIMIT_CORE, &none);
  signal(end.number, SIG_DFL);
  raise(end.number);
  return 128 + end.number;  // the signal does not end this process
}

}  // namespace stowage
