// The terminal that a program writes to.
#pragma once

#include <cstdio>
#include <string>

namespace stowage {

// Columns of the terminal behind `file`, 0 when it is none.
int terminal_columns(std::FILE* file);

// `file` where it is a terminal, else nullptr.
std::FILE* terminal_or_null(std::FILE* file);

class ProgressLine {
 public:
  explicit ProgressLine(std::FILE* terminal) : terminal_(terminal) {}  // nullptr: says nothing
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  ~ProgressLine();

  void show(const std::string& what);

 private:
  std::FILE* terminal_;
  bool shown_ = false;
};

}  // namespace stowage
