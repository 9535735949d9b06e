#include "offload/plan/period_jobs.h"

#include <algorithm>
#include <utility>

namespace stowage {
namespace {

// One that is on its way: how many more offloads of ops it lets pass, and from which op it is.
struct Waiting {
  LifetimeId id = no_id;
  int by = 0;
  std::uint32_t from = 0;
};

LoadJob load_job(const PeriodRates& rates, const Period& period, LifetimeId id,
                 const std::vector<std::uint32_t>& place, const std::vector<std::uint32_t>& offload_of) {
  const auto& lifetimes = period.draft.lifetimes;
  LoadJob load;
  load.id = id;
  load.before = period.before[id];
  load.seconds = rates.h2d[lifetimes[id].bucket];
  load.bytes = period.bytes[id];
  if (load.before == no_id) {
    load.host_seconds = period.host_seconds[lifetimes[id].bucket];
    return load;
  }
  load.op_before = place[static_cast<std::size_t>(lifetimes[load.before].last_use)];
  load.offload = offload_of[load.before];
  load.joins = load.offload == no_id;
  return load;
}

}  // namespace

PeriodJobs::PeriodJobs(const PeriodRates& rates, const Period& period,
                       std::span<const Postponement> postponements) {
  const auto& lifetimes = period.draft.lifetimes;
  std::vector<std::uint32_t> offload_of(lifetimes.size(), no_id);
  std::vector<std::uint32_t> place(period.order.size());
  std::vector<Waiting> waiting;  // by lifetime, as the plan has those that come behind the same
  const auto add_offload = [&](LifetimeId id, OpJob& op) {
    offload_of[id] = static_cast<std::uint32_t>(offloads.size());
    offloads.push_back({id, rates.d2h[lifetimes[id].bucket], period.bytes[id]});
    ++op.offloads;
  };
  for (std::uint32_t i = 0; i < period.order.size(); ++i) {
    const auto p = static_cast<std::size_t>(period.order[i]);
    place[p] = i;
    OpJob op;
    op.seconds = period.seconds[p];
    op.first_offload = static_cast<std::uint32_t>(offloads.size());
    for (LifetimeId id : period.lasts[p]) {
      if (!lifetimes[id].offloaded) {
        op.frees += period.bytes[id];
        continue;
      }
      const auto late = std::find_if(postponements.begin(), postponements.end(),
                                     [&](const Postponement& each) { return each.id == id; });
      if (late == postponements.end())
        add_offload(id, op);
      else
        waiting.push_back({id, late->by, i});
    }
    std::sort(waiting.begin(), waiting.end(), [](const Waiting& a, const Waiting& b) { return a.id < b.id; });
    const bool has_offloads = op.offloads > 0;
    for (Waiting& each : waiting) {
      if (each.by > 0 && each.from != i && has_offloads) --each.by;
      if (each.by > 0) continue;
      postponed.emplace_back(each.id, period.order[i]);
      add_offload(each.id, op);
    }
    std::erase_if(waiting, [](const Waiting& each) { return each.by == 0; });
    for (LifetimeId id : period.firsts[p]) {
      if (!lifetimes[id].prefetched) {
        op.takes += period.bytes[id];
        continue;
      }
      op.loads.push_back(static_cast<std::uint32_t>(loads.size()));
      if (loads.size() < most_loads) op.needs |= std::uint64_t{1} << loads.size();
      loads.push_back(load_job(rates, period, id, place, offload_of));
      for (const Waiting& each : waiting)
        if (each.id == loads.back().before) possible = false;  // its bytes would be behind it
    }
    ops.push_back(std::move(op));
  }
  if (!waiting.empty()) possible = false;
}

}  // namespace stowage
