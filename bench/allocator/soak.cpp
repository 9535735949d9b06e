// Whether the caching allocator's memory drifts over a long life: random requests on several streams, with
// phases whose sizes differ, block lives from a few to millions of operations, on a simulated device. Prints
// what is reserved over what was ever live at once, as operations go by.
//
// usage: allocator_soak [--operations 1000000000] [--streams 4] [--seed 1] [--bounded 1.3]
// Ends with code 1 if reserved memory ends above `bounded` times the peak of live bytes, or goes on growing:
// the peak of the last quarter above 1.02 times that of the quarters before it.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <ctime>
#include <vector>

#include "stowage/caching_allocator.h"
#include "stowage/simulated_device.h"

namespace {

using namespace stowage;

struct Options {
  std::uint64_t operations = 1'000'000'000;
  std::size_t streams = 4;
  std::uint64_t seed = 1;
  double bounded = 1.3;
};

// xorshift: the generator must not cost more than what is measured.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15ull + 1) {}
  std::uint64_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    return state_ ^= state_ << 17;
  }
  std::size_t below(std::size_t end) { return static_cast<std::size_t>(next() % end); }

 private:
  std::uint64_t state_;
};

class Soak {
 public:
  explicit Soak(const Options& options) : options_(options), random_(options.seed) {
    for (std::size_t i = 0; i < options.streams; ++i) lanes_.emplace_back(*device_, LaneRole::compute);
    blocks_.resize(4096);
    // Sizes that come back, as those of a program do: each power of two from 512 bytes to 8 MiB, and odd ones
    // between.
    for (int i = 0; i < 64; ++i)
      sizes_.push_back(static_cast<Bytes>(512 * std::exp2(14.0 * i / 63)) + 17 * random_.below(97));
  }

  // Returns whether memory kept its bounds.
  bool run() {
    fmt::print("{:>14} {:>14} {:>14} {:>14} {:>8} {:>10} {:>9}\n", "operations", "live now", "peak live",
               "peak reserved", "ratio", "hits", "cpu ns");
    Bytes before = 0, last = 0;
    constexpr int parts = 16;
    for (int part = 0; part < parts; ++part) {
      allocator_.reset_peaks();
      const std::clock_t start = std::clock();
      for (std::uint64_t i = 0; i < options_.operations / parts; ++i)
        step(i + static_cast<std::uint64_t>(part));
      const double taken = 1e9 * static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
      const AllocatorStatistics all = allocator_.statistics();
      (part < 3 * parts / 4 ? before : last) =
          std::max(part < 3 * parts / 4 ? before : last, all.peak_reserved);
      fmt::print(
          "{:>14} {:>14} {:>14} {:>14} {:>8.4f} {:>9.1f}% {:>9.1f}\n",
          static_cast<std::uint64_t>(part + 1) * (options_.operations / parts), live_, peak_,
          all.peak_reserved, static_cast<double>(all.peak_reserved) / static_cast<double>(peak_),
          100.0 * static_cast<double>(all.pools[0].hits) / static_cast<double>(all.pools[0].allocations),
          taken / static_cast<double>(options_.operations / parts));
    }
    return static_cast<double>(last) <= 1.02 * static_cast<double>(before) &&
           static_cast<double>(last) <= options_.bounded * static_cast<double>(peak_);
  }

 private:
  struct Block {
    void* address = nullptr;
    Bytes bytes = 0;
  };

  // One slot's block goes or comes: each slot has its own time of life, up to thousands of times another's.
  void step(std::uint64_t number) {
    const std::size_t slot = random_.below(std::size_t{1} << (1 + random_.below(12)));
    Block& block = blocks_[slot];
    if (block.address != nullptr) {
      allocator_.release_raw(block.address);
      live_ -= block.bytes;
      block = {};
      return;
    }
    const std::size_t phase =
        static_cast<std::size_t>(number >> 20) % 4 * 8;  // which sizes are common changes
    const std::size_t size = random_.below(8) == 0 ? random_.below(64) : phase + random_.below(32);
    block.bytes = sizes_[size] + (random_.below(16) == 0 ? random_.below(4096) : 0);
    block.address = allocator_.allocate_raw(block.bytes, lanes_[random_.below(lanes_.size())].id());
    live_ += block.bytes;
    peak_ = std::max(peak_, live_);
  }

  const Options options_;
  Random random_;
  std::unique_ptr<SimulatedDevice> device_ =
      open_simulated_device({.capacity = 16_GiB, .executor = Executor::virtual_time, .poison = Poison::none});
  std::vector<Lane> lanes_;
  CachingAllocator allocator_{*device_};
  std::vector<Block> blocks_;
  std::vector<Bytes> sizes_;
  Bytes live_ = 0;
  Bytes peak_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Whether the caching allocator's memory drifts over a long life."};
  Options options;
  app.add_option("--operations", options.operations, "requests and releases")->check(CLI::PositiveNumber);
  app.add_option("--streams", options.streams, "that requests come from")->check(CLI::Range(1, 64));
  app.add_option("--seed", options.seed, "of the program")->check(CLI::PositiveNumber);
  app.add_option("--bounded", options.bounded, "reserved over peak live bytes, at most")
      ->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  const bool bounded = Soak(options).run();
  fmt::print("{}\n", bounded ? "no drift" : "memory drifted");
  return bounded ? 0 : 1;
}
