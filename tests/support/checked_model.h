// An allocator under observation: what it gives must not overlap, and must be reserved.
#pragma once

#include <map>
#include <stdexcept>
#include <vector>

#include "tools/replay/replay.h"

namespace stowage::test {

class CheckedModel : public AllocatorModel {
 public:
  explicit CheckedModel(AllocatorModel& model) : model_(model) {}

  // Throws std::logic_error where the model breaks its contract.
  std::uint64_t allocate(AllocationId id, Bytes bytes, std::uint32_t stream) override {
    const std::uint64_t address = model_.allocate(id, bytes, stream);
    const auto above = live_.lower_bound(address);
    if (above != live_.end() && above->first < address + bytes)
      throw std::logic_error("overlaps what is above");
    if (above != live_.begin() && std::prev(above)->second > address)
      throw std::logic_error("overlaps what is below");
    live_[address] = address + bytes;
    addresses_.resize(std::max<std::size_t>(addresses_.size(), id + std::size_t{1}));
    addresses_[id] = address;
    bytes_ += bytes;
    if (bytes_ > model_.reserved_bytes()) throw std::logic_error("more is live than reserved");
    return address;
  }
  void free(AllocationId id) override {
    const auto found = live_.find(addresses_[id]);
    bytes_ -= found->second - found->first;
    live_.erase(found);
    model_.free(id);
    if (bytes_ > model_.reserved_bytes()) throw std::logic_error("more is live than reserved after a free");
  }
  void begin_iteration() override { model_.begin_iteration(); }
  Bytes reserved_bytes() const override { return model_.reserved_bytes(); }
  void release_cached() override { model_.release_cached(); }
  bool is_warm() const override { return model_.is_warm(); }

 private:
  AllocatorModel& model_;
  std::map<std::uint64_t, std::uint64_t> live_;  // begin to end
  std::vector<std::uint64_t> addresses_;         // by id
  Bytes bytes_ = 0;
};

}  // namespace stowage::test
