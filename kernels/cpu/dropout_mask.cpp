#include "kernels/cpu/dropout_mask.h"

#include <algorithm>
#include <array>

#include "kernels/cpu/clones.h"

namespace stowage::cpu {
namespace {

constexpr std::int64_t groups = 64;  // groups of four elements that are drawn at a time
using Words = std::array<std::uint32_t, groups * 4>;

STOWAGE_CLONES void draw(const RandomStream& stream, std::uint64_t index, Words& words) {
#pragma omp simd
  for (std::int64_t group = 0; group < groups; ++group) {
    const auto drawn = random_words(stream, index + static_cast<std::uint64_t>(group));
    std::uint32_t* four = words.data() + 4 * group;
    four[0] = drawn.v[0];
    four[1] = drawn.v[1];
    four[2] = drawn.v[2];
    four[3] = drawn.v[3];
  }
}

template <class T>
STOWAGE_HOST_DEVICE void select_loop(const std::uint32_t* words, std::uint32_t threshold, T scale,
                                     std::int64_t count, const T* x, T* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) y[i] = words[i] >= threshold ? x[i] * scale : T{0};
}

STOWAGE_CLONES void select(const std::uint32_t* words, std::uint32_t threshold, float scale,
                           std::int64_t count, const float* x, float* y) {
  select_loop(words, threshold, scale, count, x, y);
}

void select(const std::uint32_t* words, std::uint32_t threshold, double scale, std::int64_t count,
            const double* x, double* y) {
  select_loop(words, threshold, scale, count, x, y);
}

}  // namespace

DropoutMask::DropoutMask(const RandomStream& stream, double probability)
    : stream_(stream), threshold_(dropout_threshold(probability)), scale_(1 / (1 - probability)) {}

template <class T>
void DropoutMask::apply_blocks(std::uint64_t first, std::int64_t count, const T* x, T* y) const {
  if (threshold_ > 0xffffffffU) {  // the mask keeps nothing
    std::fill(y, y + count, T{0});
    return;
  }
  Words words;
  first += stream_.first;
  std::uint64_t index = first / 4;
  auto skipped = static_cast<std::int64_t>(first % 4);
  for (std::int64_t done = 0; done < count;) {
    draw(stream_, index, words);
    const std::int64_t length = std::min(groups * 4 - skipped, count - done);
    select(words.data() + skipped, static_cast<std::uint32_t>(threshold_), static_cast<T>(scale_), length,
           x + done, y + done);
    done += length;
    index += groups;
    skipped = 0;
  }
}

void DropoutMask::apply(std::uint64_t first, std::int64_t count, const float* x, float* y) const {
  apply_blocks(first, count, x, y);
}

void DropoutMask::apply(std::uint64_t first, std::int64_t count, const double* x, double* y) const {
  apply_blocks(first, count, x, y);
}

}  // namespace stowage::cpu
