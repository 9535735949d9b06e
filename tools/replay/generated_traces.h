// Traces made from a seed: long-lived and growing blocks among short ones, and programs that are made
// to fragment.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/history/allocation_trace.h"

namespace stowage {

// Seeds of bench/replay/run. The allocator's rules were chosen by seeds 1 to 500, without a look at these.
inline constexpr std::uint64_t first_generated_seed = 9001;
inline constexpr std::uint64_t generated_traces = 50;

// A seed gives the same lifetimes everywhere: 500 to 4,000 moments, some hundred to some thousand buffers,
// and at most 160 to 1,025 MB live. Sizes are drawn so that each power of two is as likely as another.
//   long-lived: 4 to 40, of 64 KiB to 64 MiB, from the first tenth to the last;
//   growing: 2 to 8, from 16 KiB to 1 MiB up to 128 MiB, by a quarter to the double each 20 to 200 moments;
//   the
//     larger one is made before the old one is freed, as for a list or a cache of keys and values;
//   short: one each 1 to 4 moments, nine in ten for 1 to 12 moments and one for 20 to 120, three in four of
//   512
//     bytes to 4 MiB and one of up to 128 MiB.
std::vector<PlacementItem> generated_lifetimes(std::uint64_t seed);

struct NamedTrace {
  std::string name;
  AllocationTrace trace;  // all blocks are freed at its end
};

// Traces of whole programs: long-lived blocks among short ones, growing ones among short ones, training steps
// of varied length. 1 to 2 GB live at most.
std::vector<NamedTrace> generated_programs(std::uint64_t seed);

// Patterns of simple programs: queues of blocks that leave as they came, blocks that pile up to 1 GB and go
// all at once, a buffer that grows by a MiB at a time, and slivers of 4 KiB that stay when the blocks between
// them are gone.
std::vector<NamedTrace> patterned_programs(std::uint64_t seed);
std::vector<NamedTrace> large_queues(std::uint64_t seed);  // one trace: a queue of 100 blocks of 1 to 20 MB

// Programs that fragment every allocator which does not move blocks: few survivors scattered over phases of
// other sizes, and small blocks whose lives are all random.
std::vector<NamedTrace> hostile_programs(std::uint64_t seed);

}  // namespace stowage
