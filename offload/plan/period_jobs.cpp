#include "offload/plan/period_jobs.h"

#include <utility>

namespace stowage {
namespace {

bool offload_is_of(const Period& period, std::size_t p, LifetimeId id) {
  return static_cast<std::size_t>(period.draft.lifetimes[id].last_use) == p;
}

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

PeriodJobs::PeriodJobs(const PeriodRates& rates, const Period& period, LifetimeId postponed,
                       int postponed_by) {
  const auto& lifetimes = period.draft.lifetimes;
  std::vector<std::uint32_t> offload_of(lifetimes.size(), no_id);
  std::vector<std::uint32_t> place(period.order.size());
  int waits = -1;  // for the offloads of so many ops: the postponed one
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
      if (id == postponed) {
        waits = postponed_by;
        continue;
      }
      offload_of[id] = static_cast<std::uint32_t>(offloads.size());
      offloads.push_back({id, rates.d2h[lifetimes[id].bucket], period.bytes[id]});
      ++op.offloads;
    }
    const bool own = waits == postponed_by && offload_is_of(period, p, postponed);
    if (waits > 0 && !own && op.offloads > 0) --waits;
    if (waits == 0) {
      waits = -1;
      postponed_to = period.order[i];
      offload_of[postponed] = static_cast<std::uint32_t>(offloads.size());
      offloads.push_back({postponed, rates.d2h[lifetimes[postponed].bucket], period.bytes[postponed]});
      ++op.offloads;
    }
    for (LifetimeId id : period.firsts[p]) {
      if (!lifetimes[id].prefetched) {
        op.takes += period.bytes[id];
        continue;
      }
      op.loads.push_back(static_cast<std::uint32_t>(loads.size()));
      if (loads.size() < most_loads) op.needs |= std::uint64_t{1} << loads.size();
      loads.push_back(load_job(rates, period, id, place, offload_of));
      if (waits >= 0 && loads.back().before == postponed) possible = false;  // its bytes would be behind it
    }
    ops.push_back(std::move(op));
  }
  if (waits >= 0) possible = false;
}

}  // namespace stowage
