// Search for the header of a group of codes (group_codes.h): the one with the smallest sum of squared errors,
// of equal ones the first tried. Host and device give the same bits if contraction is off.
//
// With 8 bits at most 10 headers are tried, with 4 bits 16. All 16 breakpoints with all scales would gain
// 0.02 dB and 0.15 dB at most on Gaussian numbers, Student-t numbers with 3 degrees of freedom, and rows with
// a few channels 20 times larger.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "kernels/math/bfloat16.h"
#include "kernels/math/group_codes.h"
#include "kernels/math/host_device.h"

namespace stowage {

// Returns an integer that orders like the number. number_of is its inverse.
STOWAGE_HOST_DEVICE std::int32_t order_of(float number) {
  const auto bits = std::bit_cast<std::int32_t>(number);
  return bits ^ ((bits >> 31) & 0x7fffffff);
}
STOWAGE_HOST_DEVICE float number_of(std::int32_t order) {
  return std::bit_cast<float>(order ^ ((order >> 31) & 0x7fffffff));
}

// A group's ends. NaNs count as greater than infinity, or as less than its negative, by their sign.
struct GroupRange {
  float least, greatest;

  STOWAGE_HOST_DEVICE bool mirrored() const { return -least > greatest; }
  STOWAGE_HOST_DEVICE float largest() const { return mirrored() ? -least : greatest; }
  // Returns the other end, with the sign of the largest magnitude as plus.
  STOWAGE_HOST_DEVICE float other() const { return mirrored() ? -greatest : least; }
  // Returns the power of two that the encoder multiplies values by: the largest magnitude becomes less
  // than 4.
  STOWAGE_HOST_DEVICE float unit() const {
    const std::uint32_t exponent = std::bit_cast<std::uint32_t>(largest()) >> 23U;
    return std::bit_cast<float>((254U - (exponent < 253U ? exponent : 253U)) << 23U);
  }

  // Whether the group needs a search: all elements are finite, and one of them is normal.
  STOWAGE_HOST_DEVICE bool is_searched() const {
    return largest_bits() >= 0x00800000 && largest_bits() < 0x7f800000;
  }
  // Returns the header of a group that needs no search. Its codes are 0.
  STOWAGE_HOST_DEVICE GroupHeader unsearched_header() const {
    return {largest_bits() < 0x00800000 ? std::uint16_t{0} : scale_of_nan, 0};
  }

 private:
  STOWAGE_HOST_DEVICE std::int32_t largest_bits() const {
    return greater(std::bit_cast<std::int32_t>(magnitude(least)),
                   std::bit_cast<std::int32_t>(magnitude(greatest)));
  }
};

// The 256 squared errors are added in this order, which a warp or a vector can keep: 32 sums of 8 consecutive
// elements each, in their order; then, for half = 16, 8, 4, 2, 1, sum i and sum i + half become sum i.
inline constexpr int error_sums = 32, elements_of_sum = 8;

struct GroupTrial {
  GroupHeader header;
  float error;
};
STOWAGE_HOST_DEVICE void keep_better(GroupTrial& best, const GroupTrial& other) {
  if (other.error < best.error) best = other;
}

// The largest magnitudes that are tried, as shares of the group's own. Smaller ones clip, which pays with 4
// bits only.
STOWAGE_HOST_DEVICE constexpr int tried_scales(int bits) { return bits == 4 ? 3 : 1; }
STOWAGE_HOST_DEVICE float tried_share(int number) { return number == 0 ? 1.0F : number == 1 ? 0.9F : 0.8F; }

// Returns the scale nearest to a magnitude among the finite, normal ones.
STOWAGE_HOST_DEVICE std::uint16_t nearest_scale(float largest) {
  const std::uint16_t scale = Bfloat16(largest).bits;
  if (scale < least_scale) return least_scale;
  return scale > greatest_scale ? greatest_scale : scale;
}

// `Group`, here and below, has a GroupRange `range`, and error(codes), which adds the squares of
// codes.error(value * range.unit()) over the group in the order above. Requires range.is_searched().
template <int bits, class Group>
STOWAGE_HOST_DEVICE GroupTrial tried_uniform(const Group& group, GroupHeader header) {
  const UniformCodes<bits> codes(header, scale_of(header) * group.range.unit());
  return {header, group.error(codes)};
}
template <int bits, class Group>
STOWAGE_HOST_DEVICE GroupTrial tried_piecewise(const Group& group, GroupHeader header) {
  const PiecewiseCodes<bits> codes(header, scale_of(header) * group.range.unit());
  return {header, group.error(codes)};
}

// Returns the place of a uniform group whose t is `sixty_fourths` / 64, at most 63 / 64.
STOWAGE_HOST_DEVICE std::uint8_t uniform_place(std::int32_t sixty_fourths, bool mirrored) {
  const std::int32_t limited = sixty_fourths < -64 ? -64 : sixty_fourths > 63 ? 63 : sixty_fourths;
  const auto seven_bits = static_cast<std::uint32_t>(limited) & 0x7fU;
  return static_cast<std::uint8_t>(seven_bits | (mirrored ? mirrored_bit : 0U));
}

// Tries every scale with the two places next to the group's other end.
template <int bits, class Group>
STOWAGE_HOST_DEVICE GroupTrial best_uniform(const Group& group) {
  GroupTrial best{{}, std::numeric_limits<float>::infinity()};
  for (int number = 0; number < tried_scales(bits); ++number) {
    const float share = tried_share(number);
    GroupHeader header{nearest_scale(group.range.largest() * share), 0};
    const float other = group.range.other() * share / scale_of(header) * 64;
    const auto towards_zero = static_cast<std::int32_t>(other);
    const std::int32_t below = towards_zero - (static_cast<float>(towards_zero) > other ? 1 : 0);
    for (int next = 0; next < 2; ++next) {
      header.place = uniform_place(below + next, group.range.mirrored());
      keep_better(best, tried_uniform<bits>(group, header));
    }
  }
  return best;
}

STOWAGE_HOST_DEVICE std::uint16_t piecewise_scale(float largest) {
  return static_cast<std::uint16_t>(nearest_scale(largest) | piecewise_bit);
}
// Breakpoints are tried in 32nds of the scale, up to 16. Returns the place of one.
STOWAGE_HOST_DEVICE std::uint8_t piecewise_place(std::int32_t thirty_seconds) {
  return static_cast<std::uint8_t>(16 * thirty_seconds - 1);
}

// Tries the breakpoints on either side of the best one, `distance` away.
template <int bits, class Group>
STOWAGE_HOST_DEVICE void try_neighbours(const Group& group, std::int32_t distance, GroupTrial& best) {
  const std::int32_t middle = (best.header.place + 1) / 16;
  for (std::int32_t sign = -1; sign <= 1; sign += 2) {
    const std::int32_t breakpoint = middle + sign * distance;
    if (breakpoint > 16) continue;
    const GroupHeader header{best.header.scale, piecewise_place(breakpoint)};
    keep_better(best, tried_piecewise<bits>(group, header));
  }
}

// Tries breakpoints 4, 8, 12 and 16; the best one's neighbours 2 away; smaller scales with the best of these;
// and the best one's neighbours 1 away. The error has about one valley, so that few trials find it.
template <int bits, class Group>
STOWAGE_HOST_DEVICE GroupTrial best_piecewise(const Group& group) {
  const float largest = group.range.largest();
  const std::uint16_t scale = piecewise_scale(largest);
  GroupTrial best = tried_piecewise<bits>(group, {scale, piecewise_place(4)});
  for (std::int32_t breakpoint = 8; breakpoint <= 16; breakpoint += 4)
    keep_better(best, tried_piecewise<bits>(group, {scale, piecewise_place(breakpoint)}));
  try_neighbours<bits>(group, 2, best);
  const std::uint8_t place = best.header.place;
  for (int number = 1; number < tried_scales(bits); ++number)
    keep_better(best, tried_piecewise<bits>(group, {piecewise_scale(largest * tried_share(number)), place}));
  try_neighbours<bits>(group, 1, best);
  return best;
}

// Returns the header with the smaller error.
template <int bits, class Group>
STOWAGE_HOST_DEVICE GroupHeader best_header(const Group& group) {
  GroupTrial best = best_uniform<bits>(group);
  keep_better(best, best_piecewise<bits>(group));
  return best.header;
}

}  // namespace stowage
