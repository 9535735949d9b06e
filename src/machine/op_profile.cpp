#include "src/machine/op_profile.h"

#include <algorithm>
#include <cmath>

#include "src/graph/cost.h"

namespace stowage {
namespace {

constexpr double shortest = 1e-9;  // least time of an op: clocks may read 0 for a tiny one

// The time of an op of this cost whose kernel has no rates of its own.
double plain_seconds(const OpCost& cost, const Machine& machine) {
  Op plain;
  plain.cost = {cost.flops, cost.bytes};
  return seconds_by_rates(plain, machine);
}

bool is_same(const OpCost& a, const OpCost& b) { return a.flops == b.flops && a.bytes == b.bytes; }

// Squared distance of the logarithms.
double distance(const OpCost& a, const OpCost& b) {
  const double flops = std::log((1 + a.flops) / (1 + b.flops));
  const double bytes = std::log((1 + a.bytes) / (1 + b.bytes));
  return flops * flops + bytes * bytes;
}

}  // namespace

void OpProfile::add(const std::string& kernel, const OpCost& cost, double seconds) {
  std::vector<Times>& all = kernels_[kernel];
  auto same =
      std::find_if(all.begin(), all.end(), [&](const Times& times) { return is_same(times.cost, cost); });
  if (same == all.end()) same = all.insert(all.end(), {{cost.flops, cost.bytes}});
  same->count += 1;
  same->seconds += (std::max(seconds, shortest) - same->seconds) / same->count;
}

void OpProfile::for_each(
    const std::function<void(const std::string& kernel, const OpCost& cost, double seconds)>& use) const {
  for (const auto& [kernel, all] : kernels_)
    for (const Times& times : all) use(kernel, times.cost, times.seconds);
}

double OpProfile::seconds(const Op& op, const Machine& machine) const {
  const auto kernel = kernels_.find(op.kernel);
  if (kernel == kernels_.end()) return seconds_by_rates(op, machine);
  double weights = 0, sum = 0;
  for (const Times& times : kernel->second) {
    if (is_same(times.cost, op.cost)) return times.seconds;
    const double weight = 1 / distance(times.cost, op.cost);
    weights += weight;
    sum += weight * std::log(times.seconds / plain_seconds(times.cost, machine));
  }
  return plain_seconds(op.cost, machine) * std::exp(sum / weights);
}

OpProfile profile_of(const MachineFile& file, DataType work, int devices) {
  const int slower = file.backend == "simulated" ? devices : 1;
  OpProfile profile;
  for (const OpSample& sample : file.ops)
    if (sample.type == work)
      profile.add(sample.kernel, {sample.flops, sample.bytes}, slower * sample.seconds);
  return profile;
}

void set_seconds(const OpProfile& profile, const Machine& machine, Graph& graph) {
  for (Op& op : graph.ops)
    if (!op.cost.seconds && !op.cost.type && op.cost.peer_bytes == 0)
      op.cost.seconds = profile.seconds(op, machine);
}

}  // namespace stowage
