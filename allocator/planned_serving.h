// PlannedServing: what a plan serves of the default pool's requests, and the memory behind it.
//
// A PlannedPool says at which offset the next request lies, if the program goes on as before. Offsets count
// from the begin of a range of addresses of their own, which this class backs with memory. The owner, which
// alone knows streams and blocks, goes through one request as follows:
//   1. `ask`: the request is compared with the plan. Its ticket stands for it from now on.
//   2. `change`: whether another plan is in use than before. If so the owner collects what streams cache, and
//      calls `make_way`, which gives back the memory that served while there was no such plan.
//   3. If the answer has a place, the owner lets the stream wait for `waits`, and calls `back`. If both work,
//      it calls `take`, and the block lies there. If not, it calls `decline`, and serves the request itself.
//   4. At the release it calls `free`; and `give`, if the block took its place.
// A request that nobody could serve ends with `cancel` instead.
//
// Invariants between calls:
//   - every byte of a taken place is mapped, and no two taken places share one;
//   - a mapped granule that no taken place touches is idle. It is lent to whoever needs memory (`lend`), and
//     mapped anew where a place is backed;
//   - each ticket is freed or cancelled once.
//
// REQUIRES: the allocator's mutex, for every call: a plan goes by the order of requests. Calls no stream.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "allocator/mapped_memory.h"
#include "allocator/plan_region.h"
#include "allocator/planned_pool.h"
#include "stowage/caching_allocator.h"

namespace stowage::caching {

class PlannedServing {
 public:
  using Ticket = PlannedPool::Ticket;
  struct Answer {
    Ticket ticket = 0;
    std::optional<Interval> place;  // nothing: the caching path serves the request
  };
  enum class Change : std::uint8_t {
    none,
    known_plan,  // one that was made before is in use again
    new_plan,
  };

  // `space`: whole granules of `memory`'s range, which nobody else uses; empty: nothing is ever asked. Its
  // memory counts to `pool`.
  PlannedServing(Interval space, MappedMemory& memory, Pool& pool);

  void begin_iteration();
  // The next request. REQUIRES: bytes > 0, a multiple of the block table's unit.
  Answer ask(Bytes bytes, LaneId lane);

  // Since before the last `ask` or `begin_iteration`; each change is told once. A new plan that would need
  // more memory than its iteration took without it is rejected here. `allocated`: bytes of the pool's blocks,
  // taken places among them; called for a new plan only.
  Change change(const std::function<Bytes()>& allocated);
  // Unmaps spare granules of the pool: all of them for a new plan, since the next iteration may need less
  // than this one did; for a known plan those that it will not take. REQUIRES: `change` was not none. What
  // streams cached is in the pool's heap. For a new plan the caller has waited for all work; for a known one
  // it has looked what has passed.
  void make_way(Change change);

  // What other lanes than `lane` may still be doing in the place.
  Tags waits(Interval place, const LaneClock& lane) const { return region_.waits(place, lane); }
  // Granules of the place that are not mapped.
  std::uint64_t missing(Interval place) const;
  // Maps what is missing. Memory is moved before more is taken: first idle granules beyond those that the
  // plan needs at once, then the pool's spare ones, then the plan's other idle ones, which it will want back.
  // False: there is none below the limit, or a call of the device failed.
  bool back(Interval place);
  // A block lies in the place. REQUIRES: `back` returned true; its stream waits for `waits`.
  void take(Interval place) { region_.take(place); }
  // The block has left the place; others may have the bytes once `tags` have passed. REQUIRES: `take`.
  void give(Interval place, Tags tags) { region_.give(place, std::move(tags)); }

  // The place of this ticket cannot be had now. REQUIRES: it is the last that was asked.
  void decline(Ticket ticket) { plan_.decline(ticket); }
  void free(Ticket ticket) { plan_.free(ticket); }
  void cancel(Ticket ticket) { plan_.cancel(ticket); }

  // Unmaps up to `most` idle granules, or a few more, since pieces go whole. Returns how many.
  std::uint64_t lend(std::uint64_t most) { return lend(most, {}); }
  // How many `lend` would unmap.
  std::uint64_t lendable(std::uint64_t most) const;

  Bytes unused_bytes() const { return region_.mapped() * memory_.granule() - region_.held(); }
  // End by begin, in granules.
  const std::map<std::uint64_t, std::uint64_t>& mapped_runs() const { return region_.mapped_runs(); }
  PlanStatistics statistics() const;

 private:
  std::uint64_t lend(std::uint64_t most, Interval kept);
  std::uint64_t beyond_need(std::uint64_t more) const;
  bool is_wasteful(Bytes allocated) const;

  MappedMemory& memory_;
  Pool& pool_;
  PlannedPool plan_;
  PlanRegion region_;
  std::uint64_t plans_made_ = 0;  // that `change` has told
  bool was_planned_ = false;      // when `change` last looked, or before the request since
};

}  // namespace stowage::caching
