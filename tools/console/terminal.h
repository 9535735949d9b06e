// The terminal that a program writes to.
#pragma once

#include <cstdio>
#include <string>

namespace stowage {

// Returns the columns of the terminal behind `file`; 0 if it is no terminal.
int terminal_columns(std::FILE* file);

// Returns `file` if it is a terminal, else nullptr.
std::FILE* terminal_or_null(std::FILE* file);

// A line that says what is under way, and is gone at the end.
class ProgressLine {
 public:
  explicit ProgressLine(std::FILE* terminal) : terminal_(terminal) {}  // `terminal` nullptr: prints nothing
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  ~ProgressLine();

  void show(const std::string& what);

 private:
  std::FILE* terminal_;
  bool shown_ = false;
};

}  // namespace stowage
