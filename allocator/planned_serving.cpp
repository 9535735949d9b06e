#include "allocator/planned_serving.h"

#include <algorithm>
#include <exception>
#include <utility>
#include <vector>

namespace stowage::caching {
namespace {

std::uint64_t length_of(const std::vector<Interval>& runs) {
  std::uint64_t granules = 0;
  for (const Interval& run : runs) granules += run.length();
  return granules;
}

}  // namespace

PlannedServing::PlannedServing(Interval space, MappedMemory& memory, Pool& pool)
    : memory_(memory),
      pool_(pool),
      plan_({.alignment = PlannedPoolOptions{}.alignment, .granule = memory.granule()}),
      region_(space, memory.granule()) {}

void PlannedServing::begin_iteration() {
  was_planned_ = plan_.is_planned();
  plan_.begin_iteration();
}

PlannedServing::Answer PlannedServing::ask(Bytes bytes, LaneId lane) {
  was_planned_ = plan_.is_planned();
  const PlannedPool::Block found = plan_.allocate(bytes, lane);
  Answer answer{found.ticket, std::nullopt};
  if (found.offset) answer.place = region_.at(*found.offset, bytes);
  return answer;
}

PlannedServing::Change PlannedServing::change(const std::function<Bytes()>& allocated) {
  const bool is_new = plans_made_ != plan_.statistics().plans;
  plans_made_ = plan_.statistics().plans;
  if (is_new && is_wasteful(allocated())) plan_.reject_plan();
  if (plan_.bytes() > region_.bytes()) plan_.drop_plans();
  const bool was_planned = std::exchange(was_planned_, plan_.is_planned());
  if (!plan_.is_planned()) return Change::none;
  return is_new ? Change::new_plan : was_planned ? Change::none : Change::known_plan;
}

// Whether the new plan would need more than its iteration took without one: that has been mapped for it, and
// is mapped still, beside what stays.
bool PlannedServing::is_wasteful(Bytes allocated) const {
  const Bytes staying = allocated - std::min(allocated, region_.held());
  const Bytes without = pool_.reserved * memory_.granule();
  return plan_.backed_bytes() + staying > without + without / 100 + memory_.granule();
}

void PlannedServing::make_way(Change change) {
  if (change == Change::new_plan) {
    memory_.unmap_spare(pool_, pool_.reserved);
    return;
  }
  std::uint64_t wanted = length_of(region_.missing(region_.at(0, plan_.bytes())));
  wanted -= std::min(wanted, beyond_need(wanted));
  const std::uint64_t spare = pool_.heap.spare().count();
  if (spare > wanted) memory_.unmap_spare(pool_, spare - wanted);
}

std::uint64_t PlannedServing::missing(Interval place) const { return length_of(region_.missing(place)); }

bool PlannedServing::back(Interval place) {
  const std::vector<Interval> runs = region_.missing(place);
  if (runs.empty()) return true;
  const std::uint64_t count = length_of(runs);
  const std::uint64_t moved = lend(std::min(count, beyond_need(count)), place);
  memory_.unmap_spare(pool_, count - std::min(count, moved));
  if (memory_.room() < count) lend(count - memory_.room(), place);
  std::exception_ptr failure;  // which does not matter: the caching path will see it
  while (failure == nullptr && memory_.room() >= count) {
    if (memory_.map(region_, pool_, runs, failure)) return true;
    if (memory_.unmap_spare(pool_, count) == 0) return false;
  }
  return false;
}

// Granules by which the mapped ones and `more` are above those that the plan needs at once.
std::uint64_t PlannedServing::beyond_need(std::uint64_t more) const {
  const Bytes granule = memory_.granule();
  const std::uint64_t needed = (plan_.backed_bytes() + granule - 1) / granule;
  const std::uint64_t mapped = region_.mapped() + more;
  return mapped - std::min(mapped, needed);
}

std::uint64_t PlannedServing::lend(std::uint64_t most, Interval kept) {
  return memory_.unmap(region_, pool_, region_.recyclable(memory_.pieces(), most, kept));
}

std::uint64_t PlannedServing::lendable(std::uint64_t most) const {
  return length_of(region_.recyclable(memory_.pieces(), most, {}));
}

PlanStatistics PlannedServing::statistics() const {
  const PlannedPoolStatistics& pool = plan_.statistics();
  return {pool.plans,    pool.hits,     pool.unplanned,
          pool.misses,   plan_.bytes(), region_.mapped() * memory_.granule(),
          region_.held()};
}

}  // namespace stowage::caching
