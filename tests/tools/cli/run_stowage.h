// Runs the program at STOWAGE_PROGRAM as a user does.
#pragma once

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

namespace stowage::test {

struct Result {
  int code = -1;
  std::string output;  // and errors
};

// `before`: assignments to the environment, and a blank.
inline Result run_stowage(const std::string& arguments, const std::string& before = "") {
  Result result;
  std::FILE* pipe = ::popen((before + STOWAGE_PROGRAM + ' ' + arguments + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return result;
  std::array<char, 4096> block;
  while (std::size_t count = std::fread(block.data(), 1, block.size(), pipe))
    result.output.append(block.data(), count);
  const int status = ::pclose(pipe);
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return result;
}

}  // namespace stowage::test
