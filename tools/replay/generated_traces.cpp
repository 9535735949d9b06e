#include "tools/replay/generated_traces.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <utility>

namespace stowage {
namespace {

// SplitMix64 (Steele, Lea, Flood, 2014): the standard library's distributions differ from one to the next.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : state_(seed * 0xd1342543de82ef95U + 1) {}
  // Returns a number in [low, high].
  std::uint64_t between(std::uint64_t low, std::uint64_t high) {
    state_ += 0x9e3779b97f4a7c15U;
    std::uint64_t value = state_;
    value = (value ^ (value >> 30U)) * 0xbf58476d1ce4e5b9U;
    value = (value ^ (value >> 27U)) * 0x94d049bb133111ebU;
    return low + (value ^ (value >> 31U)) % (high - low + 1);
  }
  // Returns 2^low to 2^high bytes, each power of two as likely as the next.
  Bytes bytes(std::uint64_t low, std::uint64_t high) {
    const Bytes power = Bytes{1} << between(low, high - 1);
    return power + between(0, power - 1);
  }

 private:
  std::uint64_t state_;
};

using Items = std::vector<PlacementItem>;

std::int64_t time_of(std::uint64_t value) { return static_cast<std::int64_t>(value); }

void add_long_lived(Draws& draws, std::int64_t end, Items& items) {
  const std::uint64_t count = draws.between(4, 40);
  const auto early = static_cast<std::uint64_t>(end / 10);
  for (std::uint64_t i = 0; i < count; ++i)
    items.push_back(
        {time_of(draws.between(0, early)), end - time_of(draws.between(0, early)), draws.bytes(16, 26)});
}

// Adds buffers that grow by 25 to 100 % at a time, and move each time.
void add_growing(Draws& draws, std::int64_t end, Items& items) {
  const std::uint64_t count = draws.between(2, 8);
  for (std::uint64_t i = 0; i < count; ++i) {
    Bytes bytes = draws.bytes(14, 20);
    std::int64_t at = time_of(draws.between(0, static_cast<std::uint64_t>(end / 4)));
    while (at < end && bytes < 128_MiB) {
      const std::int64_t next = at + time_of(draws.between(20, 200));
      items.push_back({at, std::min(next + 1, end), bytes});  // the old buffer lives while it is copied
      bytes += bytes * draws.between(1, 4) / 4;
      at = next;
    }
  }
}

void add_short(Draws& draws, std::int64_t end, Items& items) {
  for (std::int64_t at = 0; at < end; at += time_of(draws.between(1, 4))) {
    const std::int64_t length =
        time_of(draws.between(0, 9) == 0 ? draws.between(20, 120) : draws.between(1, 12));
    items.push_back({at, std::min(at + length, end), draws.bytes(9, draws.between(0, 3) == 0 ? 27 : 22)});
  }
}

// Traces of whole programs. Sizes are drawn so that each power of two is as likely as another.
class Program {
 public:
  explicit Program(std::uint64_t seed) : draws_(seed) {}

  AllocationId ask(double bytes) { return builder_.allocate(static_cast<Bytes>(std::max(1.0, bytes))); }
  void release(AllocationId block) { builder_.free(block); }
  double share() { return static_cast<double>(draws_.between(0, std::uint64_t{1} << 52U)) * 0x1p-52; }
  double size(double from, double to) { return from * std::exp(std::log(to / from) * share()); }
  std::size_t below(std::size_t end) { return draws_.between(0, end - 1); }
  bool once_in(std::size_t times) { return below(times) == 0; }
  AllocationId take_any(std::vector<AllocationId>& blocks) {
    std::swap(blocks[below(blocks.size())], blocks.back());
    const AllocationId block = blocks.back();
    blocks.pop_back();
    return block;
  }
  void release_all(std::vector<AllocationId>& blocks) {
    for (const AllocationId block : blocks) release(block);
    blocks.clear();
  }
  AllocationTrace finish() { return std::move(builder_).finish(); }

 private:
  Draws draws_;
  TraceBuilder builder_;
};

// Many short blocks, of which 1 in 50 stays to the end.
AllocationTrace long_among_short(std::uint64_t seed) {
  Program program(seed);
  std::vector<AllocationId> live, staying;
  for (int i = 0; i < 5000; ++i) {
    const AllocationId block = program.ask(program.size(512, 64e6));
    (program.once_in(50) ? staying : live).push_back(block);
    while (live.size() > 60) program.release(program.take_any(live));
  }
  program.release_all(live);
  program.release_all(staying);
  return program.finish();
}

// 24 caches of keys and values that grow by up to 40 % at a time, moved to a larger block as vectors are, up
// to 200 MB and then anew, beside short work.
AllocationTrace growing_among_short(std::uint64_t seed) {
  Program program(seed);
  std::vector<std::pair<AllocationId, double>> sequences;
  for (int i = 0; i < 1500; ++i) {
    std::vector<AllocationId> work;
    for (int k = 0; k < 4; ++k) work.push_back(program.ask(program.size(4e3, 40e6)));
    if (sequences.size() < 24) sequences.emplace_back(program.ask(2e6), 2e6);
    auto& [block, bytes] = sequences[program.below(sequences.size())];
    bytes *= 1.0 + 0.01 * static_cast<double>(program.below(40));
    program.release(std::exchange(block, program.ask(bytes)));
    if (bytes > 200e6) {
      program.release(block);
      bytes = 2e6;
      block = program.ask(bytes);
    }
    program.release_all(work);
  }
  for (const auto& [block, bytes] : sequences) program.release(block);
  return program.finish();
}

// Training with inputs of another length at each step: activations are kept through forward and released
// in backward.
AllocationTrace steps_of_varied_length(std::uint64_t seed) {
  Program program(seed);
  std::vector<AllocationId> weights;
  for (int i = 0; i < 200; ++i) weights.push_back(program.ask(program.size(4e3, 32e6)));
  for (int step = 0; step < 12; ++step) {
    const double length = 0.3 + 0.07 * program.size(1, 10);
    std::vector<AllocationId> kept;
    for (int op = 0; op < 150; ++op) {
      const AllocationId workspace = program.ask(length * 9e6);
      kept.push_back(program.ask(length * (op % 5 == 0 ? 33e6 : 5.3e6)));
      if (op % 7 == 0) kept.push_back(program.ask(4 + 1000 * length));
      program.release(workspace);
    }
    for (; !kept.empty(); kept.pop_back()) {
      const AllocationId gradient = program.ask(length * 8e6);
      program.release(kept.back());
      program.release(gradient);
    }
  }
  program.release_all(weights);
  return program.finish();
}

AllocationTrace queue_of(std::uint64_t seed, std::size_t length, double from, double to) {
  Program program(seed);
  std::deque<AllocationId> queue;
  for (int i = 0; i < 4000; ++i) {
    queue.push_back(program.ask(program.size(from, to)));
    if (queue.size() <= length) continue;
    program.release(queue.front());
    queue.pop_front();
  }
  for (const AllocationId block : queue) program.release(block);
  return program.finish();
}

AllocationTrace saw_teeth(std::uint64_t seed) {
  Program program(seed);
  for (int tooth = 0; tooth < 12; ++tooth) {
    std::vector<AllocationId> blocks;
    for (double held = 0; held < 1e9;) {
      const double bytes = program.size(4e3, 64e6);
      blocks.push_back(program.ask(bytes));
      held += bytes;
    }
    if (tooth % 2 == 1) std::reverse(blocks.begin(), blocks.end());
    program.release_all(blocks);
  }
  return program.finish();
}

AllocationTrace growing_buffer(std::uint64_t seed) {
  Program program(seed);
  AllocationId buffer = program.ask(1);
  for (int mib = 1; mib <= 400; ++mib)
    program.release(std::exchange(buffer, program.ask((mib + program.share()) * 1_MiB)));
  program.release(buffer);
  return program.finish();
}

AllocationTrace slivers(std::uint64_t seed) {
  Program program(seed);
  std::vector<AllocationId> staying, blocks;
  for (int i = 0; i < 400; ++i) {
    const bool before = program.once_in(2);
    if (before) staying.push_back(program.ask(4_KiB));
    blocks.push_back(program.ask(2_MiB - 4_KiB));
    if (!before) staying.push_back(program.ask(4_KiB));
  }
  program.release_all(blocks);
  for (int i = 0; i < 20; ++i) blocks.push_back(program.ask(39_MiB));
  program.release_all(blocks);
  program.release_all(staying);
  return program.finish();
}

// Phases whose sizes differ by a factor of 3; one block in 100 of each stays, scattered.
AllocationTrace phases_of_other_sizes(std::uint64_t seed) {
  Program program(seed);
  std::vector<AllocationId> staying;
  double scale = 2e4;
  while (scale < 3e8) {
    std::vector<AllocationId> live;
    double held = 0;
    while (held < 1e9 && live.size() < 3000) {
      const double bytes = scale * (1 + program.share());
      live.push_back(program.ask(bytes));
      held += bytes;
    }
    scale *= 3;
    while (!live.empty()) {
      const AllocationId block = program.take_any(live);
      if (program.once_in(100)) {
        staying.push_back(block);
      } else {
        program.release(block);
      }
    }
  }
  program.release_all(staying);
  return program.finish();
}

// 5,000 blocks of up to 256 kB at a time, each as likely to go as another.
AllocationTrace small_blocks(std::uint64_t seed) {
  Program program(seed);
  std::vector<AllocationId> live;
  for (int i = 0; i < 20000; ++i) {
    live.push_back(program.ask(program.size(16, 256e3)));
    while (live.size() > 5000) program.release(program.take_any(live));
  }
  program.release_all(live);
  return program.finish();
}

}  // namespace

std::vector<PlacementItem> generated_lifetimes(std::uint64_t seed) {
  Draws draws(seed);
  const auto end = time_of(draws.between(500, 4000));
  Items items;
  add_long_lived(draws, end, items);
  add_growing(draws, end, items);
  add_short(draws, end, items);
  return items;
}

std::vector<NamedTrace> generated_programs(std::uint64_t seed) {
  return {{"long-among-short", long_among_short(seed)},
          {"growing-among-short", growing_among_short(seed)},
          {"steps-of-varied-length", steps_of_varied_length(seed)}};
}

std::vector<NamedTrace> patterned_programs(std::uint64_t seed) {
  return {{"queue-of-small", queue_of(seed, 1000, 64e3, 1e6)},
          {"queue-of-all-sizes", queue_of(seed, 200, 512, 64e6)},
          {"saw-teeth", saw_teeth(seed)},
          {"growing-buffer", growing_buffer(seed)},
          {"slivers", slivers(seed)}};
}

std::vector<NamedTrace> large_queues(std::uint64_t seed) {
  return {{"queue", queue_of(seed, 100, 1e6, 20e6)}};
}

std::vector<NamedTrace> hostile_programs(std::uint64_t seed) {
  return {{"phases-of-other-sizes", phases_of_other_sizes(seed)}, {"small-blocks", small_blocks(seed)}};
}

}  // namespace stowage
