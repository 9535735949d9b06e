#include "tests/samples/run_program.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <stdexcept>

#include "tests/support/temporary_folder.h"

namespace stowage::samples {
namespace {

[[noreturn]] void execute(const std::string& program, const std::vector<std::string>& arguments, int output,
                          const std::string& error_file) {
  const int errors = ::open(error_file.c_str(), O_WRONLY | O_CREAT, 0600);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(errors, STDERR_FILENO);
  std::vector<char*> words = {const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  ::execv(program.c_str(), words.data());
  ::_exit(127);
}

}  // namespace

ProgramResult run_program(const std::string& program, const std::vector<std::string>& arguments,
                          const std::string& interrupt_after, int signal,
                          const std::function<pid_t(pid_t program)>& receiver) {
  const TemporaryFolder folder;
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  const pid_t child = ::fork();
  if (child == 0) execute(program, arguments, ends[1], folder.file("errors"));
  ::close(ends[1]);

  ProgramResult result;
  bool interrupt = !interrupt_after.empty();
  std::array<char, 4096> block;
  ssize_t count = 0;
  while ((count = ::read(ends[0], block.data(), block.size())) > 0) {
    result.output.append(block.data(), static_cast<std::size_t>(count));
    if (interrupt && result.output.find(interrupt_after) != std::string::npos) {
      interrupt = false;
      if (signal == SIGPIPE) break;
      ::kill(receiver ? receiver(child) : child, signal);
    }
  }
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.errors = contents_of(folder.file("errors"));
  return result;
}

ProgramResult run_train_gpt(const std::vector<std::string>& arguments, const std::string& interrupt_after,
                            int signal) {
  return run_program(STOWAGE_TRAIN_GPT, arguments, interrupt_after, signal);
}

ProgramResult well(ProgramResult result) {
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  return result;
}

std::string expect_refusal(const ProgramResult& result, const std::vector<std::string>& parts) {
  EXPECT_EQ(result.exit_code, 2) << result.output;
  EXPECT_EQ(std::count(result.errors.begin(), result.errors.end(), '\n'), 1) << result.errors;
  for (const std::string& part : parts) EXPECT_THAT(result.errors, ::testing::HasSubstr(part));
  return result.errors;
}

}  // namespace stowage::samples
