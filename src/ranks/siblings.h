// Siblings: watches the processes that a launcher has started on this machine until all ranks have come
// together. Without the watch, the ranks would wait for one that has died.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

namespace stowage::ranks {

class Siblings {
 public:
  // Watches the children of the process `launcher`, this process among them; their environment variable
  // `rank` has their ranks. `all`: number of ranks if all run on this machine, else 0.
  Siblings(pid_t launcher, std::string rank, int all = 0)
      : launcher_(launcher), variable_(std::move(rank)), all_(all) {}

  // Returns the ranks that have ended: a call has seen them earlier, or they are missing although all must
  // have been started by now. If signals are known to have ended some ranks, returns only these: the others
  // may have ended because of them. Returns none if the system does not list processes.
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
