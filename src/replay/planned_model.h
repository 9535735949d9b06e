// The planned pool in front of a caching allocator: what it has no offset for goes there.
#pragma once

#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "allocator/planned_pool.h"
#include "src/replay/allocator_model.h"

namespace stowage {

// Reserves the pool's memory in whole pages of 2 MiB, as a device maps it, as long as the pool needs it, and
// gives back what the fallback caches once there is a plan. Where both are more than the limit, what the
// fallback caches goes first, then the plan.
class PlannedModel : public AllocatorModel {
 public:
  // `limit`: of the device, for both together. The fallback has it too.
  explicit PlannedModel(std::unique_ptr<AllocatorModel> fallback,
                        Bytes limit = std::numeric_limits<Bytes>::max())
      : fallback_(std::move(fallback)), limit_(limit) {}

  std::uint64_t allocate(AllocationId id, Bytes bytes, std::uint32_t stream) override;
  void free(AllocationId id) override;
  void begin_iteration() override;
  Bytes reserved_bytes() const override;
  void release_cached() override { fallback_->release_cached(); }
  // From the first plan on.
  bool is_warm() const override { return pool_.statistics().plans > 0; }
  const PlannedPoolStatistics& statistics() const { return pool_.statistics(); }

 private:
  std::uint64_t allocate_elsewhere(AllocationId id, Bytes bytes, std::uint32_t stream);
  void trim_behind_plan();
  bool make_room();

  struct Live {
    PlannedPool::Ticket ticket = 0;
    bool is_planned = false;
  };
  std::unique_ptr<AllocatorModel> fallback_;
  Bytes limit_;
  PlannedPool pool_;
  std::uint64_t plans_ = 0;  // made so far
  std::vector<Live> live_;   // by id
};

}  // namespace stowage
