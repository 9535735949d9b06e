#include "allocator/replay/plan.h"

#include <algorithm>
#include <map>
#include <utility>

#include "src/placement/methods.h"
#include "stowage/placement.h"

namespace stowage::caching::replay {
namespace {

using Indexes = std::vector<std::uint32_t>;

// Branchings times items: a second or so, at ten microseconds a branching for a few hundred items.
constexpr std::uint64_t search_work = 20'000'000;

// The search goes on if `place` ends more than a 256th above the bound, since a plan serves many iterations.
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

bool is_tight(Bytes bytes, Bytes live) { return bytes <= live + live / 100; }

Bytes touched_bytes(const std::vector<PlacementItem>& items, const std::vector<Bytes>& offsets,
                    Bytes granule) {
  return placement::most_touched(items, offsets, granule) * granule;
}

// Places the requests anew so that they touch few granules, not so that they end low: granules between blocks
// can serve others.
void place_loosely(const std::vector<PlacementItem>& items, Bytes alignment, Bytes granule,
                   PlacementResult& placed) {
  std::vector<Bytes> offsets = placement::place_for_granules(items, alignment, granule);
  if (touched_bytes(items, offsets, granule) >= touched_bytes(items, placed.offsets, granule)) return;
  placed.offsets = std::move(offsets);
  placed.peak = 0;
  for (std::size_t i = 0; i < items.size(); ++i)
    placed.peak = std::max(placed.peak, placed.offsets[i] + items[i].bytes);
}

// An arena for all streams is worth waits between streams if it saves this much beside an arena for each.
constexpr Bytes least_saved = 2_MiB;
constexpr Bytes least_saved_share = 32;

std::vector<PlacementItem> items_of(const std::vector<RecordedRequest>& requests, const Indexes& members) {
  std::vector<PlacementItem> items;
  for (const std::uint32_t index : members) {
    const RecordedRequest& request = requests[index];
    items.push_back(
        {static_cast<std::int64_t>(request.made), static_cast<std::int64_t>(request.freed), request.bytes});
  }
  return items;
}

// Places the requests behind those that are placed already.
void place_requests(const std::vector<RecordedRequest>& requests, const Indexes& members, Bytes alignment,
                    Bytes granule, Plan& plan) {
  const Bytes base = align_up(plan.bytes, alignment);
  const std::vector<PlacementItem> items = items_of(requests, members);
  PlacementResult placed = place_well(items, alignment);
  const bool is_loose = !is_tight(align_up(placed.peak, granule), placed.lower_bound);
  if (is_loose) place_loosely(items, alignment, granule, placed);
  for (std::size_t i = 0; i < members.size(); ++i) {
    PlannedRequest& request = plan.requests[members[i]];
    request.offset = placed.offsets[i] += base;
    request.has_offset = true;
  }
  const Bytes touched = is_loose ? touched_bytes(items, placed.offsets, granule) : placed.peak;
  plan.needed += std::min(touched, placed.peak);
  plan.bytes = base + placed.peak;
}

void list_frees(const std::vector<RecordedRequest>& requests, Plan& plan) {
  for (std::uint32_t i = 0; i < requests.size(); ++i) {
    if (plan.requests[i].has_offset) plan.frees.push_back(i);
  }
  std::sort(plan.frees.begin(), plan.frees.end(),
            [&](std::uint32_t a, std::uint32_t b) { return requests[a].freed < requests[b].freed; });
  std::uint32_t freed = 0;
  for (const RecordedRequest& request : requests) {
    while (freed < plan.frees.size() && requests[plan.frees[freed]].freed < request.made) ++freed;
    plan.frees_before.push_back(freed);
  }
}

void share_streams(const std::vector<RecordedRequest>& requests, const Indexes& all, Bytes alignment,
                   Bytes granule, Plan& plan) {
  const auto is_worth_it = [&](Bytes bytes) {
    return plan.needed > bytes + bytes / least_saved_share + least_saved;
  };
  if (!is_worth_it(peak_live_bytes(items_of(requests, all)))) return;
  Plan shared = plan;
  shared.bytes = shared.needed = 0;
  place_requests(requests, all, alignment, granule, shared);
  if (is_worth_it(shared.needed)) plan = std::move(shared);
}

}  // namespace

Plan make_plan(const std::vector<RecordedRequest>& requests, Bytes alignment, Bytes granule) {
  Plan plan;
  std::map<std::uint64_t, Indexes> streams;
  Indexes all;
  for (const RecordedRequest& request : requests) {
    const auto index = static_cast<std::uint32_t>(plan.requests.size());
    plan.requests.push_back({request.bytes, request.stream, 0, false});
    if (request.freed == RecordedRequest::never) continue;
    streams[request.stream].push_back(index);
    all.push_back(index);
  }
  for (const auto& [stream, members] : streams) place_requests(requests, members, alignment, granule, plan);
  if (streams.size() > 1) share_streams(requests, all, alignment, granule, plan);
  list_frees(requests, plan);
  return plan;
}

}  // namespace stowage::caching::replay
