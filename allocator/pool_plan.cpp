#include "allocator/pool_plan.h"

#include <algorithm>
#include <map>
#include <utility>

#include "stowage/placement.h"

namespace stowage {
namespace {

using Indexes = std::vector<std::uint32_t>;

// A branching costs some ten microseconds for a few hundred items: this is a second or so.
constexpr std::uint64_t search_work = 20'000'000;

// A plan serves many iterations, so what `place` leaves above the bound is searched for longer.
PlacementResult place_well(const std::vector<PlacementItem>& items, Bytes alignment) {
  PlacementResult placed = place(items, alignment);
  PlacementOptions options;
  options.alignment = alignment;
  options.capacity = placed.lower_bound + placed.lower_bound / 256;
  if (placed.peak <= options.capacity) return placed;
  options.node_limit = search_work / items.size();
  PlacementResult searched = solve_placement(items, options);
  return searched.peak < placed.peak ? searched : placed;
}

// Where each stream having bytes of its own takes so much more than one arena for all, waits between streams
// are worth it.
constexpr Bytes least_saved = 2_MiB;
constexpr Bytes least_saved_share = 32;

std::vector<PlacementItem> items_of(const std::vector<LoggedRequest>& requests, const Indexes& members) {
  std::vector<PlacementItem> items;
  for (const std::uint32_t index : members) {
    const LoggedRequest& request = requests[index];
    items.push_back(
        {static_cast<std::int64_t>(request.made), static_cast<std::int64_t>(request.freed), request.bytes});
  }
  return items;
}

// Places the requests from `base` on; returns where they end.
Bytes place_requests(const std::vector<LoggedRequest>& requests, const Indexes& members, Bytes base,
                     Bytes alignment, PoolPlan& plan) {
  const PlacementResult placed = place_well(items_of(requests, members), alignment);
  for (std::size_t i = 0; i < members.size(); ++i) {
    PlannedRequest& request = plan.requests[members[i]];
    request.offset = base + placed.offsets[i];
    request.has_offset = true;
  }
  return base + placed.peak;
}

void list_frees(const std::vector<LoggedRequest>& requests, PoolPlan& plan) {
  for (std::uint32_t i = 0; i < requests.size(); ++i) {
    if (plan.requests[i].has_offset) plan.frees.push_back(i);
  }
  std::sort(plan.frees.begin(), plan.frees.end(),
            [&](std::uint32_t a, std::uint32_t b) { return requests[a].freed < requests[b].freed; });
  std::uint32_t freed = 0;
  for (const LoggedRequest& request : requests) {
    while (freed < plan.frees.size() && requests[plan.frees[freed]].freed < request.made) ++freed;
    plan.frees_before.push_back(freed);
  }
}

void share_streams(const std::vector<LoggedRequest>& requests, const Indexes& all, Bytes alignment,
                   PoolPlan& plan) {
  const auto is_worth_it = [&](Bytes bytes) {
    return plan.bytes > bytes + bytes / least_saved_share + least_saved;
  };
  if (!is_worth_it(peak_live_bytes(items_of(requests, all)))) return;
  PoolPlan shared = plan;
  shared.bytes = place_requests(requests, all, 0, alignment, shared);
  if (is_worth_it(shared.bytes)) plan = std::move(shared);
}

}  // namespace

PoolPlan make_pool_plan(const std::vector<LoggedRequest>& requests, Bytes alignment) {
  PoolPlan plan;
  std::map<std::uint64_t, Indexes> streams;
  Indexes all;
  for (const LoggedRequest& request : requests) {
    const auto index = static_cast<std::uint32_t>(plan.requests.size());
    plan.requests.push_back({request.bytes, request.stream, 0, false});
    if (request.freed == LoggedRequest::never) continue;
    streams[request.stream].push_back(index);
    all.push_back(index);
  }
  for (const auto& [stream, members] : streams)
    plan.bytes = place_requests(requests, members, align_up(plan.bytes, alignment), alignment, plan);
  if (streams.size() > 1) share_streams(requests, all, alignment, plan);
  list_frees(requests, plan);
  return plan;
}

}  // namespace stowage
