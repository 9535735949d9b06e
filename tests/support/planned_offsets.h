// The replay server alone as a model, over addresses that nothing backs: what it has no offset for goes to
// another model. The allocator's own plans need a device.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "allocator/replay/server.h"
#include "tools/replay/replay.h"

namespace stowage::test {

class PlannedOffsets : public AllocatorModel {
 public:
  explicit PlannedOffsets(std::unique_ptr<AllocatorModel> fallback) : fallback_(std::move(fallback)) {}

  std::uint64_t allocate(AllocationId id, Bytes bytes, std::uint32_t stream) override {
    constexpr std::uint64_t above_all = std::uint64_t{1} << 63U;
    if (live_.size() <= id) live_.resize(id + std::size_t{1});
    live_[id] = server_.allocate(bytes, stream);
    return live_[id].offset ? above_all + *live_[id].offset : fallback_->allocate(id, bytes, stream);
  }
  void free(AllocationId id) override {
    if (!live_[id].offset) fallback_->free(id);
    server_.free(live_[id].ticket);
  }
  void begin_iteration() override {
    fallback_->begin_iteration();
    server_.begin_iteration();
  }
  Bytes reserved_bytes() const override { return fallback_->reserved_bytes() + server_.bytes(); }
  void release_cached() override { fallback_->release_cached(); }

 private:
  std::unique_ptr<AllocatorModel> fallback_;
  caching::replay::Server server_;
  std::vector<caching::replay::Server::Answer> live_;  // by id
};

}  // namespace stowage::test
