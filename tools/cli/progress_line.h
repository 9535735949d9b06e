// One line on a terminal that says what is under way, and is gone at the end.
#pragma once

#include <cstdio>
#include <string>

namespace stowage {

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
