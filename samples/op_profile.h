// OpProfile: what ops took where they were measured, and what that says of ops like them.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <tuple>

#include "stowage/graph.h"
#include "stowage/machine.h"

namespace stowage::samples {

class OpProfile {
 public:
  // One op's time on the compute lane, its launch included. More of the same kernel and cost are averaged.
  void add(const Op& op, double seconds);
  bool empty() const { return times_.empty(); }

  // What an op takes: the time of those of its kernel and cost; else what `machine` says, times how much
  // longer or shorter the measured ops of its kernel took than it says of them; of a kernel that was not
  // measured what `machine` says.
  double seconds(const Op& op, const Machine& machine) const;

 private:
  struct Times {
    double seconds = 0;
    std::size_t count = 0;
    OpCost cost;
  };
  using Key = std::tuple<std::string, double, double>;  // kernel, flops, bytes
  std::map<Key, Times> times_;
};

// Every op's measured seconds (OpCost::seconds), so that plans go by them.
void set_seconds(const OpProfile& profile, const Machine& machine, Graph& graph);

}  // namespace stowage::samples
