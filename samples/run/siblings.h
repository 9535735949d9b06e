// Siblings: the processes that a launcher has started on this machine, watched until all ranks have come
// together. Until then MPI waits for one that has died.
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>

namespace stowage::samples {

class Siblings {
 public:
  // Children of the process `launcher`, whose environment variable `rank` says which they are.
  Siblings(pid_t launcher, std::string rank) : launcher_(launcher), variable_(std::move(rank)) {}

  // The rank of one that an earlier call, or this one, has seen and that has ended. None where the system
  // does not say which processes there are.
  std::optional<int> ended();

 private:
  void look();

  pid_t launcher_;
  std::string variable_;
  std::map<pid_t, int> ranks_;
};

}  // namespace stowage::samples
