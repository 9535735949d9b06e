// What the lanes have to do in one period, as an order search starts it: ops, loads and offloads, and what
// each waits for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "offload/plan/period.h"

namespace stowage {

struct LoadJob {
  LifetimeId id = no_id;
  LifetimeId before = no_id;
  std::uint32_t op_before = no_id;  // in the period's order, after which it may come
  std::uint32_t offload = no_id;    // that makes the host's copy
  bool joins = false;               // may go on with the bytes of the one before
  double host_seconds = 0;          // of the update that must come first: of a bucket's first load
  double seconds = 0;
  Bytes bytes = 0;
};
struct OpJob {
  double seconds = 0;
  Bytes takes = 0, frees = 0;
  std::uint64_t needs = 0;                        // loads, by bits: the first most_loads
  std::vector<std::uint32_t> loads;               // first used by it
  std::uint32_t first_offload = 0, offloads = 0;  // ready behind it
};
struct OffloadJob {
  LifetimeId id = no_id;
  double seconds = 0;
  Bytes bytes = 0;
};

struct PeriodJobs {
  static constexpr std::size_t most_loads = 64;  // that an op's needs tell apart

  // `postponed` names each lifetime once.
  PeriodJobs(const PeriodRates& rates, const Period& period, std::span<const Postponement> postponed);

  std::vector<OpJob> ops;  // in the period's order
  std::vector<LoadJob> loads;
  std::vector<OffloadJob> offloads;                        // in the link's order
  std::vector<std::pair<LifetimeId, Position>> postponed;  // behind whose offloads
  // Each of these has one to go behind, and what it sends is read again only behind that.
  bool possible = true;
};

}  // namespace stowage
