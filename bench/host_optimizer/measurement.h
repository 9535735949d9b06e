// The updates and memory patterns that this benchmark times.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace stowage::bench {

struct Measurement {
  std::string name, type, instruction_set;
  int threads = 1;
  // Bytes that cross the memory bus. A line that is written is read first, unless it is streamed.
  double bytes_per_element = 0;
  double elements = 0;
  std::function<void()> prepare, run;
};

// Adds copy, in-place scale and triad over arrays that together are as large as AdamW's in f32. Adds each
// also with stores that go around the cache.
void add_patterns(std::int64_t count, std::vector<Measurement>& to);

// Adds AdamW of `count` parameters in f32 and with split weights.
void add_updates(std::int64_t count, std::vector<Measurement>& to);

// Adds AdamW with moments in bf16 or in 8 bits.
void add_compact_updates(std::int64_t count, std::vector<Measurement>& to);

std::vector<int> thread_counts();

}  // namespace stowage::bench
