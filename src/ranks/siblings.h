// Siblings: the processes that a launcher has started on this machine, watched until all ranks have come
// together. Until then the others would wait for one that has died.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

namespace stowage::ranks {

class Siblings {
 public:
  // Children of the process `launcher`, this one among them, whose environment variable `rank` says which
  // they are. `all`: so many ranks, if all are here; else 0.
  Siblings(pid_t launcher, std::string rank, int all = 0)
      : launcher_(launcher), variable_(std::move(rank)), all_(all) {}

  // The ranks that have ended: an earlier call, or this one, has seen them, or all must have been started by
  // now and they are not there. Where it is known that a signal ended some of them, these alone: the others
  // may have ended for them. None where the system does not say which processes there are.
  std::vector<int> ended(bool all_are_started = false);

 private:
  void look();
  bool sees_all() const;

  pid_t launcher_;
  std::string variable_;
  int all_;
  std::map<pid_t, int> ranks_;
};

}  // namespace stowage::ranks
