// OpProfile: measured times of ops, and estimates for ops like them.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "stowage/graph.h"
#include "stowage/machine.h"
#include "stowage/machine_file.h"

namespace stowage {

class OpProfile {
 public:
  // Adds the time of an op on the compute lane, its launch included. Times of the same kernel and cost
  // are averaged.
  void add(const std::string& kernel, const OpCost& cost, double seconds);
  bool empty() const { return kernels_.empty(); }
  // Calls `use` for every kernel and cost, with the mean time.
  void for_each(
      const std::function<void(const std::string& kernel, const OpCost& cost, double seconds)>& use) const;

  // Returns the time of an op: the measured time of its kernel and cost, if there is one. If only its kernel
  // was measured: the model's time on `machine`, times the ratio of measured to modelled time of the kernel's
  // ops; ops nearest in flops and bytes count most (weights by the inverse square of the distance of their
  // logarithms: Shepard, "A two-dimensional interpolation function for irregularly-spaced data", 1968).
  // Otherwise the model's time.
  double seconds(const Op& op, const Machine& machine) const;

 private:
  struct Times {
    OpCost cost;
    double seconds = 0;  // the mean
    double count = 0;
  };
  std::map<std::string, std::vector<Times>> kernels_;
};

// Returns the profile of the file's samples from models of this work type. Several simulated devices share
// the same cores, so each takes `devices` times as long.
OpProfile profile_of(const MachineFile& file, DataType work, int devices = 1);

// Sets OpCost::seconds of every op that has none yet, so that plans use them.
void set_seconds(const OpProfile& profile, const Machine& machine, Graph& graph);

}  // namespace stowage
