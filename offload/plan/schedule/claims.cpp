#include "offload/plan/schedule/claims.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <span>
#include <tuple>

#include "offload/plan/schedule/live_bytes.h"

namespace stowage {
namespace {

std::tuple<Position, Position, Position> turn_key(const DraftLifetime& lifetime) {
  return {lifetime.load, lifetime.order, lifetime.first_use};
}

}  // namespace

Claims::Claims(const Draft& draft, const BucketLayout& layout)
    : draft_(draft), layout_(layout), earliest_(draft.lifetimes.size()), by_last_(draft.lifetimes.size()) {
  std::vector<Position> ends(layout.buckets.size(), 0);
  for (LifetimeId id = 0; id < draft.lifetimes.size(); ++id) {
    const DraftLifetime& lifetime = draft.lifetimes[id];
    if (lifetime.prefetched) turns_.push_back(id);
    const bool behind_gate = layout.roles[lifetime.bucket] == BucketRole::clip;
    earliest_[id] = behind_gate ? lifetime.first : ends[lifetime.bucket];
    ends[lifetime.bucket] = std::max(ends[lifetime.bucket], lifetime.last);
  }
  if (layout.has_peers) add_gathered();
  std::stable_sort(turns_.begin(), turns_.end(), [&](LifetimeId a, LifetimeId b) {
    return turn_key(draft.lifetimes[a]) < turn_key(draft.lifetimes[b]);
  });
  std::iota(by_last_.begin(), by_last_.end(), LifetimeId{0});
  std::stable_sort(by_last_.begin(), by_last_.end(), [&](LifetimeId a, LifetimeId b) {
    return draft.lifetimes[a].last < draft.lifetimes[b].last;
  });
}

// What ops of the peer lane make of nothing that the step computes.
void Claims::add_gathered() {
  for (Position p = 0; p < static_cast<Position>(draft_.sequence.size()); ++p) {
    if (layout_.lanes[draft_.sequence[static_cast<std::size_t>(p)].op] != LaneRole::peer) continue;
    const std::span<const LifetimeId> uses = draft_.uses.at(p);
    const auto begins = [&](LifetimeId id) {
      const DraftLifetime& lifetime = draft_.lifetimes[id];
      return lifetime.first_use == p && !lifetime.prefetched && !lifetime.resident && !lifetime.whole_step;
    };
    const bool gathers = std::all_of(uses.begin(), uses.end(), [&](LifetimeId id) {
      return begins(id) || draft_.lifetimes[id].prefetched || draft_.lifetimes[id].resident;
    });
    if (gathers) std::copy_if(uses.begin(), uses.end(), std::back_inserter(turns_), begins);
  }
}

template <typename FreeFrom>
Draft Claims::claimed(FreeFrom&& free_from) const {
  Draft draft = draft_;
  Position link_turn = 0, peer_turn = 0;
  for (std::size_t i = 0; i < turns_.size(); ++i) {
    DraftLifetime& lifetime = draft.lifetimes[turns_[i]];
    Position& turn = lifetime.prefetched ? link_turn : peer_turn;
    const Position earliest = std::max(turn, earliest_[turns_[i]]);
    if (earliest < lifetime.load)
      lifetime.load = lifetime.resident ? earliest : free_from(turns_[i], earliest);
    if (!lifetime.resident) lifetime.first = lifetime.load;
    turn = lifetime.load;
    lifetime.order = static_cast<Position>(i);
  }
  return draft;
}

Draft Claims::within(Bytes cap) const {
  std::vector<Bytes> now(draft_.sequence.size() + 1, 0);  // changes, which wrap around
  for (LifetimeId id = 0; id < draft_.lifetimes.size(); ++id) {
    now[static_cast<std::size_t>(draft_.lifetimes[id].first)] += bytes_of(id);
    now[static_cast<std::size_t>(draft_.lifetimes[id].last)] -= bytes_of(id);
  }
  std::partial_sum(now.begin(), now.end(), now.begin());
  LiveBytes live(now);
  return claimed([&](LifetimeId id, Position earliest) {
    const Position first = draft_.lifetimes[id].first;
    const Position free = live.last_above(earliest, first, cap - std::min(cap, bytes_of(id))) + 1;
    live.add(free, first, bytes_of(id));
    return free;
  });
}

Draft Claims::at(const std::vector<Bytes>& offsets) const {
  return claimed(
      [&](LifetimeId id, Position earliest) { return std::max(earliest, free_from(id, offsets)); });
}

Position Claims::free_from(LifetimeId id, const std::vector<Bytes>& offsets) const {
  const Bytes begin = offsets[id], end = begin + bytes_of(id);
  auto other = std::upper_bound(
      by_last_.begin(), by_last_.end(), draft_.lifetimes[id].first,
      [&](Position position, LifetimeId lifetime) { return position < draft_.lifetimes[lifetime].last; });
  while (other != by_last_.begin()) {
    const LifetimeId before = *--other;
    const Position last = draft_.lifetimes[before].last;
    if (last <= earliest_[id]) break;
    if (offsets[before] < end && begin < offsets[before] + bytes_of(before)) return last;
  }
  return earliest_[id];
}

}  // namespace stowage
