// Runs train_gpt and train_bert as a user does.
#pragma once

#include <string>
#include <vector>

namespace stowage::samples {

struct ProgramResult {
  int exit_code = -1;  // 128 + signal when a signal ended it
  std::string output;
  std::string errors;
};

// The program with `arguments`. `interrupt_after`: sends SIGINT once the output contains this text (never for
// "").
ProgramResult run_program(const std::string& program, const std::vector<std::string>& arguments,
                          const std::string& interrupt_after = "");

// The program at STOWAGE_TRAIN_GPT.
ProgramResult run_train_gpt(const std::vector<std::string>& arguments,
                            const std::string& interrupt_after = "");

}  // namespace stowage::samples
