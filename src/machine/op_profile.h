// OpProfile: what ops took where they were measured, and what that says of ops like them.
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
  // The time on the compute lane of one op of `kernel` with this cost, its launch included. More of the same
  // kernel and cost are averaged.
  void add(const std::string& kernel, const OpCost& cost, double seconds);
  bool empty() const { return kernels_.empty(); }
  // Everything that was added, means of the same kernel and cost.
  void for_each(
      const std::function<void(const std::string& kernel, const OpCost& cost, double seconds)>& use) const;

  // The time of an op. Where an op of its kernel and cost was measured, that one's; else what `machine` says,
  // times how much longer or shorter the measured ops of its kernel took than `machine` says of them, those
  // nearest in flops and bytes counting most (weights by the inverse square of the distance of their
  // logarithms: Shepard, "A two-dimensional interpolation function for irregularly-spaced data", 1968). Where
  // its kernel was not measured, what `machine` says.
  double seconds(const Op& op, const Machine& machine) const;

 private:
  struct Times {
    OpCost cost;
    double seconds = 0;  // the mean
    double count = 0;
  };
  std::map<std::string, std::vector<Times>> kernels_;
};

// The profile of the file's samples from models of this work type. Of several simulated devices, which
// compute with the same cores, each takes as many times as long.
OpProfile profile_of(const MachineFile& file, DataType work, int devices = 1);

// The seconds (OpCost::seconds) of every op that does not have them yet, so that plans go by them.
void set_seconds(const OpProfile& profile, const Machine& machine, Graph& graph);

}  // namespace stowage
