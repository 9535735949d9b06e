#include <algorithm>
#include <memory>

#include "bench/host_optimizer/arrays.h"
#include "bench/host_optimizer/measurement.h"
#include "bench/host_optimizer/streamed.h"
#include "kernels/cpu/clones.h"

namespace stowage::bench {
namespace {

constexpr float factor = 1.0001F;

// These loops compute elements [begin, end) of `a`.
STOWAGE_CLONES void copy(std::int64_t begin, std::int64_t end, float* a, const float* b, const float*) {
  for (std::int64_t i = begin; i < end; ++i) a[i] = b[i];
}
STOWAGE_CLONES void scale(std::int64_t begin, std::int64_t end, float* a, const float*, const float*) {
  for (std::int64_t i = begin; i < end; ++i) a[i] *= factor;
}
STOWAGE_CLONES void triad(std::int64_t begin, std::int64_t end, float* a, const float* b, const float* c) {
  for (std::int64_t i = begin; i < end; ++i) a[i] = b[i] + factor * c[i];
}

using Loop = void (*)(std::int64_t, std::int64_t, float*, const float*, const float*);

// Computes the loop piece by piece into a buffer that stays in the cache, then streams the buffer to `a`.
template <Loop loop>
void streamed(std::int64_t begin, std::int64_t end, float* a, const float* b, const float* c) {
  constexpr std::int64_t piece = 1024;
  alignas(64) float result[piece];
  for (std::int64_t i = begin; i < end; i += piece) {
    const std::int64_t size = std::min(piece, end - i);
    if (loop == scale) std::memcpy(result, a + i, static_cast<std::size_t>(size) * sizeof(float));
    loop(0, size, result, b + i, c + i);
    stream(result, static_cast<std::size_t>(size) * sizeof(float), a + i);
  }
  end_of_stream();
}

}  // namespace

void add_patterns(std::int64_t count, std::vector<Measurement>& to) {
  const std::int64_t all = 4 * count / 12 * 12;  // elements of all arrays together
  const auto memory = std::make_shared<Array<float>>(all);
  const auto add = [&](const char* name, Loop loop, std::int64_t arrays, double bytes) {
    const std::int64_t size = all / arrays;
    for (int threads : thread_counts()) {
      const auto run = [=] {
        float* a = memory->data();
        const float *b = a + (arrays > 1 ? size : 0), *c = a + (arrays > 2 ? 2 * size : 0);
        parallel_for(size, chunk, [=](std::int64_t begin, std::int64_t end) { loop(begin, end, a, b, c); });
      };
      to.push_back({name, "pattern", "", threads, bytes, static_cast<double>(size), [] {}, run});
    }
  };
  add("copy", copy, 2, 12);
  add("scale in place", scale, 1, 8);
  add("triad", triad, 3, 16);
  if (!can_stream) return;
  add("copy, streamed", streamed<copy>, 2, 8);
  add("scale in place, streamed", streamed<scale>, 1, 8);
  add("triad, streamed", streamed<triad>, 3, 12);
}

}  // namespace stowage::bench
