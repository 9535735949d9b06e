// Runs train_gpt and train_bert as a user does.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <functional>
#include <string>
#include <vector>

namespace stowage::samples {

struct ProgramResult {
  int exit_code = -1;  // 128 + signal when a signal ended it
  std::string output;
  std::string errors;
};

// The program with `arguments`. `interrupt_after`: sends `signal` once the output contains this text (never
// for ""). SIGPIPE is not sent: nobody reads the output from there on. `receiver`: of the signal, where that
// is another process than this one.
ProgramResult run_program(const std::string& program, const std::vector<std::string>& arguments,
                          const std::string& interrupt_after = "", int signal = SIGINT,
                          const std::function<pid_t(pid_t program)>& receiver = {});

// The program at STOWAGE_TRAIN_GPT.
ProgramResult run_train_gpt(const std::vector<std::string>& arguments,
                            const std::string& interrupt_after = "", int signal = SIGINT);

// Expects that it ended well.
ProgramResult well(ProgramResult result);

// Expects exit code 2, and one line on stderr with all of `parts`, which it returns.
std::string expect_refusal(const ProgramResult& result, const std::vector<std::string>& parts);

}  // namespace stowage::samples
