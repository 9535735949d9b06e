// A program that is run in the place of this one: same terminal, same signals.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace stowage {

struct ChildEnd {
  bool by_signal = false;
  int number = 0;  // exit code, or number of the signal
};

// Runs `words` with the given variables added to the environment, until it ends. Passes on signals that are
// sent to this process alone; the terminal's signals reach the program anyway. Throws InvalidInput if the
// program cannot be started.
ChildEnd run_child(const std::vector<std::string>& words,
                   const std::vector<std::pair<std::string, std::string>>& variables);

// Ends this process in the same way as the program ended: returns its exit code, or does not return.
int end_as(const ChildEnd& end);

}  // namespace stowage
