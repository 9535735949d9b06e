// How much memory the caching allocator maps for traces of allocations: peak reserved over peak live, in the
// first pass and in the passes after it, on a simulated device.
//
// usage: allocator_replay [--passes 3] [--seed 1] [FILE…]     with files of id,lower,upper,size; without:
// generated ones
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "bench/allocator/traces.h"
#include "stowage/caching_allocator.h"
#include "stowage/simulated_device.h"

namespace {

using namespace stowage;

// Returns the ratio of the worst pass.
double replay(const bench::AllocationTrace& trace, int passes) {
  const auto device =
      open_simulated_device({.capacity = 64_GiB, .executor = Executor::virtual_time, .poison = Poison::none});
  const Lane lane(*device, LaneRole::compute);
  CachingAllocator allocator(*device);
  const Bytes live = bench::peak_live_bytes(trace);
  double worst = 0;
  for (int pass = 0; pass < passes; ++pass) {
    std::vector<void*> blocks(trace.blocks, nullptr);
    allocator.reset_peaks();
    const AllocatorStatistics before = allocator.statistics();
    const auto start = std::chrono::steady_clock::now();
    for (const bench::TraceEvent& event : trace.events) {
      void*& block = blocks[event.block];
      if (event.bytes > 0) {
        block = allocator.allocate_raw(event.bytes, lane.id());
      } else {
        allocator.release_raw(block);
        block = nullptr;
      }
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    const AllocatorStatistics after = allocator.statistics();
    for (void* const block : blocks)
      if (block != nullptr) allocator.release_raw(block);
    const double ratio = static_cast<double>(after.peak_reserved) / static_cast<double>(live);
    worst = std::max(worst, ratio);
    fmt::print("{:26} {:4} {:9} {:13} {:13} {:8.4f} {:8.1f}% {:8} {:8} {:8.0f}\n", trace.name, pass + 1,
               trace.events.size(), live, after.peak_reserved, ratio,
               100.0 * static_cast<double>(after.pools[0].hits - before.pools[0].hits) /
                   static_cast<double>(trace.blocks),
               after.maps - before.maps, after.unmapped_granules - before.unmapped_granules,
               1e9 * seconds.count() / static_cast<double>(trace.events.size()));
  }
  return worst;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Peak reserved over peak live memory of the caching allocator, by trace."};
  std::vector<std::string> files;
  int passes = 3;
  std::uint64_t seed = 1;
  app.add_option("files", files, "lifetimes as id,lower,upper,size; none: generated traces");
  app.add_option("--passes", passes, "of each trace")->check(CLI::Range(1, 1000));
  app.add_option("--seed", seed, "of the generated traces");
  CLI11_PARSE(app, argc, argv);
  std::vector<bench::AllocationTrace> traces;
  for (const std::string& file : files) traces.push_back(bench::read_lifetimes(file));
  if (files.empty()) traces = bench::generated_traces(seed);
  fmt::print("{:26} {:>4} {:>9} {:>13} {:>13} {:>8} {:>9} {:>8} {:>8} {:>8}\n", "trace", "pass", "events",
             "peak live", "peak reserved", "ratio", "hits", "maps", "unmapped", "ns/event");
  double worst = 0;
  for (const bench::AllocationTrace& trace : traces) worst = std::max(worst, replay(trace, passes));
  fmt::print("worst {:.4f}\n", worst);
}
