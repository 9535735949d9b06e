// The updates and memory patterns that this benchmark times.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace stowage::bench {

struct Measurement {
  std::string name, type, instruction_set;
  int threads = 1;
  double bytes_per_element =
      0;  // that cross the memory bus; a line that is written is read first, unless it is streamed
  double elements = 0;
  std::function<void()> prepare, run;
};

// Copy, in-place scale and triad over arrays that together are as large as AdamW's in f32, each also with
// stores that go around the cache.
void add_patterns(std::int64_t count, std::vector<Measurement>& to);

// AdamW of `count` parameters in f32 and with split weights.
void add_updates(std::int64_t count, std::vector<Measurement>& to);

// The same with moments that are kept in bf16 or in 8 bits.
void add_compact_updates(std::int64_t count, std::vector<Measurement>& to);

std::vector<int> thread_counts();

}  // namespace stowage::bench
