// The most of a named model that fits: in samples, and in tokens of a sample.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "tools/answer/memory_sweep.h"

namespace stowage {

inline constexpr std::int64_t most_samples = 4096;
inline constexpr std::int64_t most_tokens_of_sample = std::int64_t{1} << 20;

struct LargestShape {
  // The largest power of two, times the micro-batches, that fits at `sequence`, or the question's own batch
  // if that is larger; 0: none.
  std::int64_t batch = 0;
  std::int64_t sequence = 0;     // that of the question
  std::int64_t most_tokens = 0;  // the largest multiple of 1,024 tokens that fits at `least_batch`; 0: none
  std::int64_t least_batch = 1;  // a sample in each micro-batch
  // The model has a table of positions, whose size it says itself: most_tokens is not looked for.
  bool learned_positions = false;
};

// Asks for feasibility alone (Planner::fits), some 20 times, in two threads, up to most_samples and
// most_tokens_of_sample. `feasible`: whether the question itself is. Requires a question about a model, with
// a device budget.
LargestShape largest_shape(const PlanQuestion& question, bool feasible, const Progress& progress);

std::string describe(const LargestShape& shape);  // one line
nlohmann::ordered_json to_json(const LargestShape& shape);

}  // namespace stowage
