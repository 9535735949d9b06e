#include "samples/op_profile.h"

#include "src/graph/cost.h"

namespace stowage::samples {

void OpProfile::add(const Op& op, double seconds) {
  Times& times = times_[{op.kernel, op.cost.flops, op.cost.bytes}];
  times.seconds += seconds;
  ++times.count;
  times.cost = {op.cost.flops, op.cost.bytes};
}

double OpProfile::seconds(const Op& op, const Machine& machine) const {
  if (const auto same = times_.find({op.kernel, op.cost.flops, op.cost.bytes}); same != times_.end())
    return same->second.seconds / static_cast<double>(same->second.count);
  double took = 0, said = 0;
  for (const auto& [key, times] : times_) {
    if (std::get<0>(key) != op.kernel) continue;
    Op like;
    like.cost = times.cost;
    took += times.seconds;
    said += static_cast<double>(times.count) * op_seconds(like, machine);
  }
  Op plain;
  plain.cost = {op.cost.flops, op.cost.bytes};
  return op_seconds(plain, machine) * (said > 0 ? took / said : 1);
}

void set_seconds(const OpProfile& profile, const Machine& machine, Graph& graph) {
  for (Op& op : graph.ops) op.cost.seconds = profile.seconds(op, machine);
}

}  // namespace stowage::samples
