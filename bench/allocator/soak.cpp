// Finds out whether the caching allocator's memory drifts over a long life. Makes random requests on
// several streams, on a simulated device. Phases have different sizes; blocks live for a few to tens of
// thousands of operations.
//
// usage: allocator_soak [--operations 1000000000] [--streams 4] [--seed 1] [--windows 40] [--bounded 1.3]
//                       [--strand 0]
// Mapped memory that is not used stays mapped, so the reserved bytes are the largest need so far. They go on
// growing slowly, however stationary the program is. The life is therefore cut into windows. Each window
// begins with a trim and has whole rounds of phases, so its peak is its own need. Its ratio is this peak over
// the peak of live bytes in the same window. Blocks live far shorter than windows, so windows are nearly
// independent. A line is fitted through the ratios by least squares, without the first eighth of the windows.
// Memory drifts if the line rises by more than 0.01 over these windows, and by more than three standard
// errors. Ends with code 1 if it drifts, or if a window's ratio is above `bounded`. `--strand N` shows that a
// drift is found: one block in N is never released, but counts as released in the live bytes.
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

constexpr int phase_bits = 18;
constexpr std::uint64_t phases = 4;
constexpr std::uint64_t round_operations = phases << phase_bits;
constexpr int fewest_windows = 16;

struct Options {
  std::uint64_t operations = 1'000'000'000;
  std::size_t streams = 4;
  std::uint64_t seed = 1;
  int windows = 40;
  double bounded = 1.3;
  std::uint64_t strand = 0;
};

// Random: xorshift, since the generator must not cost more than the allocator that is measured.
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
    // Sizes recur, as a program's do: 64 of them from 512 bytes to 8 MiB, evenly spaced by their logarithms,
    // each with a small random addition.
    for (int i = 0; i < 64; ++i)
      sizes_.push_back(static_cast<Bytes>(512 * std::exp2(14.0 * i / 63)) + 17 * random_.below(97));
  }

  // Returns whether memory kept its bounds.
  bool run() {
    fmt::print("{:>14} {:>14} {:>14} {:>14} {:>8} {:>10} {:>9}\n", "operations", "live now", "peak live",
               "peak reserved", "ratio", "hits", "cpu ns");
    const std::uint64_t rounds = options_.operations / round_operations;
    const std::uint64_t each =
        std::max<std::uint64_t>(1, rounds / static_cast<std::uint64_t>(options_.windows));
    for (std::uint64_t done = 0; done + each <= rounds; done += each) run_window(each * round_operations);
    const auto settled = ratios_.begin() + static_cast<std::ptrdiff_t>(ratios_.size() / 8);
    const Line line = fitted(std::vector<double>(settled, ratios_.end()));
    const double worst = *std::max_element(ratios_.begin(), ratios_.end());
    fmt::print("worst window {:.4f}, mean {:.4f}, rise over all windows {:.5f} +- {:.5f}\n", worst, line.mean,
               line.rise, line.error);
    return worst <= options_.bounded && !(line.rise > 0.01 && line.rise > 3 * line.error);
  }

 private:
  struct Line {
    double mean = 0;
    double rise = 0;   // from the first to the last value
    double error = 0;  // standard error of `rise`
  };
  static Line fitted(const std::vector<double>& values) {
    const auto n = static_cast<double>(values.size());
    Line line;
    for (const double value : values) line.mean += value / n;
    double products = 0, squares = 0, rest = 0;
    const auto time = [&](std::size_t i) { return static_cast<double>(i) - (n - 1) / 2; };
    for (std::size_t i = 0; i < values.size(); ++i) {
      products += time(i) * (values[i] - line.mean);
      squares += time(i) * time(i);
    }
    const double slope = products / squares;
    for (std::size_t i = 0; i < values.size(); ++i)
      rest += std::pow(values[i] - line.mean - slope * time(i), 2);
    line.rise = slope * (n - 1);
    line.error = (n - 1) * std::sqrt(rest / (n - 2) / squares);
    return line;
  }

  void run_window(std::uint64_t operations) {
    allocator_.trim();
    allocator_.reset_peaks();
    peak_ = live_;
    const AllocatorStatistics before = allocator_.statistics();
    const std::clock_t start = std::clock();
    for (std::uint64_t i = 0; i < operations; ++i) step(done_++);
    const double taken = 1e9 * static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    const AllocatorStatistics all = allocator_.statistics();
    ratios_.push_back(static_cast<double>(all.peak_reserved) / static_cast<double>(peak_));
    fmt::print("{:>14} {:>14} {:>14} {:>14} {:>8.4f} {:>9.1f}% {:>9.1f}\n", done_, live_, peak_,
               all.peak_reserved, ratios_.back(),
               100.0 * static_cast<double>(all.pools[0].hits - before.pools[0].hits) /
                   static_cast<double>(all.pools[0].allocations - before.pools[0].allocations),
               taken / static_cast<double>(operations));
    std::fflush(stdout);
  }

  struct Block {
    void* address = nullptr;
    Bytes bytes = 0;
  };

  // Releases one slot's block, or allocates one if the slot is empty. Each slot has its own mean life of
  // blocks, up to thousands of times another slot's.
  void step(std::uint64_t number) {
    const std::size_t slot = random_.below(std::size_t{1} << (1 + random_.below(12)));
    Block& block = blocks_[slot];
    if (block.address != nullptr) {
      if (options_.strand == 0 || random_.below(options_.strand) != 0) allocator_.release_raw(block.address);
      live_ -= block.bytes;
      block = {};
      return;
    }
    const auto phase = static_cast<std::size_t>(number >> phase_bits) % phases * 8;  // its first size
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
  Bytes peak_ = 0;  // of the window
  std::uint64_t done_ = 0;
  std::vector<double> ratios_;  // by window
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Whether the caching allocator's memory drifts over a long life."};
  Options options;
  app.add_option("--operations", options.operations, "requests and releases")
      ->check(CLI::Range(fewest_windows * round_operations, std::uint64_t{1} << 50U));
  app.add_option("--streams", options.streams, "that requests come from")->check(CLI::Range(1, 64));
  app.add_option("--seed", options.seed, "of the program")->check(CLI::PositiveNumber);
  app.add_option("--windows", options.windows, "that the operations are cut into")
      ->check(CLI::Range(fewest_windows, 10000));
  app.add_option("--strand", options.strand, "one block in so many is never released; 0: none");
  app.add_option("--bounded", options.bounded, "reserved over peak live bytes of a window, at most")
      ->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  const bool bounded = Soak(options).run();
  fmt::print("{}\n", bounded ? "no drift" : "memory drifted");
  return bounded ? 0 : 1;
}
