// Cuts attention if a library's workspace does not hold all samples' query heads at once: into slices of
// neighbouring samples, or of one sample's neighbouring heads, all of one size. A slice has all query heads
// of the key heads that it reads, whole groups, so that it computes these key heads' gradients alone.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/attention.h"

namespace stowage::cuda {

// The part that one execution computes: all query heads of some samples, or some groups of one sample's.
struct AttentionSlice {
  std::int64_t samples = 0, heads = 0;
};

// Returns the largest slices of heads * samples that fit `limit` bytes, if all at once take
// `workspace_of_all` bytes and a part takes its share. Among the fewest such slices, returns the most equal
// ones. Empty if not even one group of heads fits.
inline AttentionSlice slice_that_fits(const AttentionShape& shape, std::int64_t workspace_of_all,
                                      std::int64_t limit) {
  constexpr std::int64_t fixed = 64 << 10;  // bytes that do not shrink with the slice, generously
  const auto parts_of = [](std::int64_t all, std::int64_t part) { return (all + part - 1) / part; };
  const auto even = [&](std::int64_t all, std::int64_t most) { return parts_of(all, parts_of(all, most)); };
  const std::int64_t group = shape.group(), groups_of_sample = shape.heads / group;
  const std::int64_t groups = shape.samples * groups_of_sample;
  const std::int64_t fitting =
      std::min(groups, std::max<std::int64_t>(0, limit - fixed) / parts_of(workspace_of_all, groups));
  if (fitting == 0) return {};
  if (fitting < groups_of_sample) return {1, even(groups_of_sample, fitting) * group};
  return {even(shape.samples, fitting / groups_of_sample), shape.heads};
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
