#include "bench/allocator/traces.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <random>
#include <sstream>
#include <tuple>

#include "stowage/error.h"

namespace stowage::bench {
namespace {

class Writer {
 public:
  Writer(std::string name, std::uint64_t seed) : random_(seed) { trace_.name = std::move(name); }

  std::uint32_t ask(double bytes) {
    trace_.events.push_back({trace_.blocks, static_cast<Bytes>(std::max(1.0, bytes))});
    return trace_.blocks++;
  }
  void release(std::uint32_t block) { trace_.events.push_back({block, 0}); }
  // Of the range, each power of two as likely as another.
  double size(double from, double to) {
    return std::exp(std::uniform_real_distribution<>(std::log(from), std::log(to))(random_));
  }
  std::size_t below(std::size_t end) {
    return std::uniform_int_distribution<std::size_t>(0, end - 1)(random_);
  }
  bool once_in(std::size_t times) { return below(times) == 0; }
  std::uint32_t take(std::vector<std::uint32_t>& blocks, std::size_t index) {
    std::swap(blocks[index], blocks.back());
    const std::uint32_t block = blocks.back();
    blocks.pop_back();
    return block;
  }
  AllocationTrace finish() { return std::move(trace_); }

 private:
  AllocationTrace trace_;
  std::mt19937_64 random_;
};

// Long-lived blocks come up among many short ones.
AllocationTrace long_among_short(std::uint64_t seed) {
  Writer writer("long-lived among short", seed);
  std::vector<std::uint32_t> live;
  for (int i = 0; i < 20000; ++i) {
    const std::uint32_t block = writer.ask(writer.size(512, 64e6));
    if (!writer.once_in(50)) live.push_back(block);
    while (live.size() > 60) writer.release(writer.take(live, writer.below(live.size())));
  }
  return writer.finish();
}

// A cache that grows by a token at a time, moved to a larger block as vectors are, beside short work.
AllocationTrace growing(std::uint64_t seed) {
  Writer writer("growing among short", seed);
  struct Sequence {
    std::uint32_t block;
    double bytes;
  };
  std::vector<Sequence> sequences;
  for (int i = 0; i < 6000; ++i) {
    std::vector<std::uint32_t> work;
    for (int k = 0; k < 4; ++k) work.push_back(writer.ask(writer.size(4e3, 40e6)));
    if (sequences.size() < 24) sequences.push_back({writer.ask(2e6), 2e6});
    Sequence& chosen = sequences[writer.below(sequences.size())];
    chosen.bytes *= 1.0 + 0.01 * static_cast<double>(writer.below(40));
    const std::uint32_t larger = writer.ask(chosen.bytes);
    writer.release(chosen.block);
    chosen.block = larger;
    if (chosen.bytes > 200e6) {
      writer.release(chosen.block);
      chosen = {writer.ask(2e6), 2e6};
    }
    for (const std::uint32_t block : work) writer.release(block);
  }
  return writer.finish();
}

// Training with inputs of another length at each step: activations kept through forward, released in
// backward.
AllocationTrace varied_steps(std::uint64_t seed) {
  Writer writer("steps of varied length", seed);
  for (int weight = 0; weight < 200; ++weight) writer.ask(writer.size(4e3, 32e6));
  for (int step = 0; step < 60; ++step) {
    const double length = 0.3 + 0.7 * writer.size(1, 10) / 10;
    std::vector<std::uint32_t> kept;
    for (int op = 0; op < 150; ++op) {
      const std::uint32_t workspace = writer.ask(length * 9e6);
      kept.push_back(writer.ask(length * (op % 5 == 0 ? 33e6 : 5.3e6)));
      if (op % 7 == 0) kept.push_back(writer.ask(4 + 1000 * length));
      writer.release(workspace);
    }
    for (; !kept.empty(); kept.pop_back()) {
      const std::uint32_t gradient = writer.ask(length * 8e6);
      writer.release(kept.back());
      writer.release(gradient);
    }
  }
  return writer.finish();
}

// Phases whose sizes differ: what one leaves is of no use to the next as it lies.
AllocationTrace phases(std::uint64_t seed) {
  Writer writer("phases of other sizes", seed);
  for (double scale = 1e3; scale < 3e8; scale *= 3) {
    std::vector<std::uint32_t> live;
    double held = 0;
    std::vector<double> sizes;
    while (held < 2e9 && live.size() < 20000) {
      const double bytes = scale * (1 + 0.001 * static_cast<double>(writer.below(1000)));
      live.push_back(writer.ask(bytes));
      held += bytes;
    }
    // A few stay, scattered.
    while (!live.empty()) {
      const std::uint32_t block = writer.take(live, writer.below(live.size()));
      if (!writer.once_in(100)) writer.release(block);
    }
  }
  return writer.finish();
}

AllocationTrace small_only(std::uint64_t seed) {
  Writer writer("small ones", seed);
  std::vector<std::uint32_t> live;
  for (int i = 0; i < 200000; ++i) {
    live.push_back(writer.ask(writer.size(16, 256e3)));
    while (live.size() > 5000) writer.release(writer.take(live, writer.below(live.size())));
  }
  return writer.finish();
}

}  // namespace

Bytes peak_live_bytes(const AllocationTrace& trace) {
  std::vector<Bytes> of(trace.blocks);
  Bytes live = 0, peak = 0;
  for (const TraceEvent& event : trace.events) {
    live += event.bytes - (event.bytes == 0 ? of[event.block] : 0);
    if (event.bytes > 0) of[event.block] = event.bytes;
    peak = std::max(peak, live);
  }
  return peak;
}

AllocationTrace read_lifetimes(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  if (!file || !std::getline(file, line) || line != "id,lower,upper,size")
    throw InvalidInput(fmt::format("{}: not a file of id,lower,upper,size; name one", path.string()));
  std::vector<std::tuple<std::int64_t, int, std::uint32_t, Bytes>> events;  // time, releases first
  AllocationTrace trace{path.stem().string(), 0, {}};
  while (std::getline(file, line)) {
    std::istringstream row(line);
    std::int64_t id = 0, lower = 0, upper = 0;
    Bytes bytes = 0;
    char comma = 0;
    if (!(row >> id >> comma >> lower >> comma >> upper >> comma >> bytes) || lower >= upper || bytes == 0)
      throw InvalidInput(fmt::format("{}: '{}' is no lifetime; correct the line", path.string(), line));
    events.emplace_back(lower, 1, trace.blocks, bytes);
    events.emplace_back(upper, 0, trace.blocks++, 0);
  }
  std::sort(events.begin(), events.end());
  for (const auto& [time, kind, block, bytes] : events) trace.events.push_back({block, bytes});
  return trace;
}

std::vector<AllocationTrace> generated_traces(std::uint64_t seed) {
  return {long_among_short(seed), growing(seed), varied_steps(seed), phases(seed), small_only(seed)};
}

}  // namespace stowage::bench
