// A program of random allocations on several lanes, which writes to every block that it gets, in the order
// that it owes the allocator, and keeps a naive account of what is live.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "stowage/caching_allocator.h"
#include "stowage/error.h"
#include "tests/allocator/device_decorator.h"

namespace stowage {

class RandomProgram {
 public:
  struct Options {
    std::size_t lanes = 8;
    Bytes most_live = 48_MiB;
    Bytes most_block = 6_MiB;
    bool crosses_lanes = true;  // uses and releases blocks on other lanes, which it orders
    std::uint64_t seed = 1;
    std::uint64_t period = 0;    // steps that come again, begun by begin_iteration; 0: none do
    std::uint64_t deviates = 0;  // one such step in so many is another; 0: none
    const void* range =
        nullptr;  // the allocator's; where it is given no call fails, and requests only for lack of memory
  };

  // `device` is the plain one, whose calls do not fail.
  RandomProgram(Device& device, CachingAllocator& allocator, const Options& options)
      : device_(device),
        allocator_(allocator),
        options_(options),
        random_(options.seed),
        deviations_(~options.seed),
        event_(device) {
    for (std::size_t i = 0; i < options.lanes; ++i) lanes_.emplace_back(device, LaneRole::compute);
  }

  void step() {
    if (options_.period > 0) begin_step();
    const std::size_t kind = below(100);
    if (kind < 45 || live_.empty()) {
      allocate();
    } else if (kind < 80) {
      release(pick());
    } else if (kind < 90 && options_.crosses_lanes) {
      use_elsewhere(pick());
    } else if (kind < 94 && options_.crosses_lanes) {
      release_elsewhere(pick());
    } else if (kind < 99) {
      use_again(pick());
    } else if (below(20) == 0) {
      allocator_.trim();
    }
    while (live_bytes_ > options_.most_live) release(pick());
  }
  void release_all() {
    while (!live_.empty()) release(pick());
  }

  // The allocator's statistics against the naive account.
  void check() const {
    const AllocatorStatistics all = allocator_.statistics();
    std::map<LaneId, Bytes> requested, allocated;
    for (const auto& [address, block] : live_) {
      requested[block.lane] += block.bytes;
      allocated[block.lane] += allocator_.block_bytes(address);
    }
    Bytes sum = 0, cached = 0;
    for (const StreamStatistics& stream : all.streams) {
      EXPECT_EQ(stream.requested, requested[stream.stream]) << "stream " << stream.stream;
      EXPECT_EQ(stream.allocated, allocated[stream.stream]) << "stream " << stream.stream;
      sum += stream.allocated;
      cached += stream.cached;
    }
    EXPECT_EQ(all.pools[0].allocated, sum);
    EXPECT_LE(sum + cached, all.reserved);
    EXPECT_EQ(all.pools[0].reserved, all.reserved);
    const MemoryInfo memory = device_.memory_info();
    EXPECT_EQ(all.reserved, memory.total - memory.free);
    EXPECT_EQ(all.pools[0].allocations, allocations_);
  }
  std::uint64_t allocations() const { return allocations_; }
  std::uint64_t failures() const { return failures_; }
  std::size_t live() const { return live_.size(); }
  LaneId lane(std::size_t index) const { return lanes_[index].id(); }

 private:
  struct Live {
    Bytes bytes = 0;
    LaneId lane = 0;
    bool used_elsewhere = false;
    std::uint64_t birth = 0;
  };
  using Blocks = std::map<std::byte*, Live>;

  // The same choices as a period ago, whatever the addresses are.
  void begin_step() {
    std::uint64_t place = steps_++ % options_.period;
    if (place == 0) {
      // One block in two iterations stays.
      while (live_.size() > deviations_() % 2) release(live_.find(births_.begin()->second));
      allocator_.begin_iteration();
    }
    if (options_.deviates > 0 && deviations_() % options_.deviates == 0) place = deviations_();
    random_.seed(options_.seed * 0x9e3779b97f4a7c15U + place);
  }

  std::size_t below(std::size_t end) {
    return std::uniform_int_distribution<std::size_t>(0, end - 1)(random_);
  }
  LaneId any_lane() { return lanes_[below(lanes_.size())].id(); }
  Blocks::iterator pick() {
    const std::uint64_t oldest = births_.begin()->first, span = births_.rbegin()->first - oldest;
    return live_.find(births_.lower_bound(oldest + below(span + 1))->second);
  }

  void allocate() {
    const double power =
        std::uniform_real_distribution<>(0, std::log(static_cast<double>(options_.most_block)))(random_);
    const Bytes bytes = static_cast<Bytes>(std::exp(power));
    const LaneId lane = any_lane();
    std::byte* address = nullptr;
    try {
      address = static_cast<std::byte*>(allocator_.allocate_raw(bytes, lane));
    } catch (const OutOfMemory&) {
      ++failures_;
      if (options_.range != nullptr) expect_no_room(bytes);
      return;
    } catch (const AccessViolation&) {
      throw;
    } catch (const DeviceError&) {
      ++failures_;
      return;
    }
    ++allocations_;
    expect_disjoint(address, bytes);
    live_.emplace(address, Live{bytes, lane, false, next_birth_});
    births_.emplace(next_birth_++, address);
    live_bytes_ += bytes;
    write_block(device_, lane, address, bytes);
  }
  void expect_disjoint(std::byte* address, Bytes bytes) const {
    const auto next = live_.lower_bound(address);
    if (next != live_.end()) {
      ASSERT_LE(address + bytes, next->first);
    }
    if (next != live_.begin()) {
      ASSERT_LE(std::prev(next)->first + std::prev(next)->second.bytes, address);
    }
  }
  // Wherever live blocks lie, granules that none of them touches would have served.
  void expect_no_room(Bytes bytes) const {
    constexpr Bytes granule = 2_MiB;
    std::set<Bytes> touched;
    for (const auto& [address, block] : live_) {
      const auto begin = static_cast<Bytes>(address - static_cast<const std::byte*>(options_.range));
      for (Bytes at = begin / granule; at * granule < begin + allocator_.block_bytes(address); ++at)
        touched.insert(at);
    }
    EXPECT_GT(touched.size() * granule + bytes, device_.memory_info().total) << "of " << bytes;
  }
  void release(Blocks::iterator block) {
    allocator_.release_raw(block->first);
    forget(block);
  }
  void forget(Blocks::iterator block) {
    live_bytes_ -= block->second.bytes;
    births_.erase(block->second.birth);
    live_.erase(block);
  }
  void order(LaneId before, LaneId after) {
    device_.record(event_.id(), before);
    device_.wait(after, event_.id());
  }
  void use_elsewhere(Blocks::iterator block) {
    const LaneId other = any_lane();
    if (block->second.used_elsewhere || other == block->second.lane) return;
    order(block->second.lane, other);
    allocator_.record_stream(block->first, other);
    write_block(device_, other, block->first, block->second.bytes);
    block->second.used_elsewhere = true;
  }
  void release_elsewhere(Blocks::iterator block) {
    const LaneId other = any_lane();
    if (block->second.used_elsewhere) return;
    order(block->second.lane, other);
    write_block(device_, other, block->first, block->second.bytes);
    allocator_.release_raw(block->first, other);
    forget(block);
  }
  void use_again(Blocks::iterator block) {
    if (!block->second.used_elsewhere)
      write_block(device_, block->second.lane, block->first, block->second.bytes);
  }

  Device& device_;
  CachingAllocator& allocator_;
  const Options options_;
  std::mt19937_64 random_, deviations_;
  Event event_;
  std::vector<Lane> lanes_;
  Blocks live_;
  std::map<std::uint64_t, std::byte*> births_;
  std::uint64_t next_birth_ = 0;
  std::uint64_t steps_ = 0;
  Bytes live_bytes_ = 0;
  std::uint64_t allocations_ = 0;
  std::uint64_t failures_ = 0;
};

}  // namespace stowage
