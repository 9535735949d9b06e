// Cuts attention if a library's workspace does not hold all samples' heads at once: into slices of
// neighbouring samples, or of one sample's neighbouring heads, all of one size.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/attention.h"

namespace stowage::cuda {

// The part that one execution computes: all heads of some samples, or some heads of one sample.
struct AttentionSlice {
  std::int64_t samples = 0, heads = 0;
};

// Returns the largest slices of heads * samples that fit `limit` bytes, if all at once take
// `workspace_of_all` bytes and a part takes its share. Among the fewest such slices, returns the most equal
// ones. Empty if not even one head fits.
inline AttentionSlice slice_that_fits(const AttentionShape& shape, std::int64_t workspace_of_all,
                                      std::int64_t limit) {
  constexpr std::int64_t fixed = 64 << 10;  // bytes that do not shrink with the slice, generously
  const auto parts_of = [](std::int64_t all, std::int64_t part) { return (all + part - 1) / part; };
  const auto even = [&](std::int64_t all, std::int64_t most) { return parts_of(all, parts_of(all, most)); };
  const std::int64_t heads = shape.samples * shape.heads;
  const std::int64_t fitting =
      std::min(heads, std::max<std::int64_t>(0, limit - fixed) / parts_of(workspace_of_all, heads));
  if (fitting == 0) return {};
  if (fitting < shape.heads) return {1, even(shape.heads, fitting)};
  return {even(shape.samples, fitting / shape.heads), shape.heads};
}

// Starts of slices of `part` of `all`. If `part` does not divide `all`, the last slice overlaps the one
// before: it computes the same once more, and writes the same bits.
class SliceStarts {
 public:
  SliceStarts(std::int64_t all, std::int64_t part) : all_(all), part_(part) {}
  std::int64_t count() const { return (all_ + part_ - 1) / part_; }
  std::int64_t operator[](std::int64_t i) const { return std::min(i * part_, all_ - part_); }

 private:
  std::int64_t all_, part_;
};

}  // namespace stowage::cuda
