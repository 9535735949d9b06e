// Compiled with contraction off: every instruction set, and the device, must give the same bits.
#include "kernels/cpu/codec.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/cpu/clones.h"
#include "kernels/cpu/storage.h"
#include "kernels/math/group_codes.h"
#include "kernels/math/group_search.h"
#include "src/base/parallel_for.h"

namespace stowage::cpu {
namespace {

constexpr int elements = static_cast<int>(code_group);
static_assert(error_sums * elements_of_sum == elements);

constexpr std::int64_t groups_of_a_chunk = 64;  // 16 Ki elements: a tenth of a millisecond to encode

template <int half>
[[gnu::always_inline]] inline float sum_of_halves(float* sums) {
  for (int i = 0; i < half; ++i) sums[i] += sums[i + half];
  if constexpr (half == 1)
    return sums[0];
  else
    return sum_of_halves<half / 2>(sums);
}

// A group's elements, divided by a power of two: element 8 i + k, the k-th of sum i, stands at 32 k + i, so
// that loops over sums read consecutive numbers.
struct Group {
  GroupRange range;
  alignas(64) float values[elements];

  template <class Codes>
  [[gnu::always_inline]] float error(const Codes& codes) const {
    alignas(64) float sums[error_sums];
    for (int i = 0; i < error_sums; ++i) {
      float sum = 0;
      for (int k = 0; k < elements_of_sum; ++k) {
        const float off = codes.error(values[error_sums * k + i]);
        sum += off * off;
      }
      sums[i] = sum;
    }
    return sum_of_halves<error_sums / 2>(sums);
  }
};

[[gnu::always_inline]] inline GroupRange range_of(const float* values) {
  std::int32_t least = order_of(values[0]), greatest = least;
  for (int i = 0; i < elements; ++i) {
    const std::int32_t order = order_of(values[i]);
    least = smaller(least, order);
    greatest = greater(greatest, order);
  }
  return {number_of(least), number_of(greatest)};
}

// Writes the codes of a whole group, in the order of its elements.
template <int bits, class Codes>
[[gnu::always_inline]] inline void write_codes(const Group& group, const Codes& codes, std::byte* to) {
  constexpr int codes_of_a_word = 32 / bits, words = elements_of_sum / codes_of_a_word;
  alignas(64) std::uint32_t packed[error_sums * words];
  for (int i = 0; i < error_sums; ++i) {
    for (int word = 0; word < words; ++word) {
      std::uint32_t all = 0;
      for (int k = 0; k < codes_of_a_word; ++k) {
        const float value = group.values[error_sums * (codes_of_a_word * word + k) + i];
        all |= static_cast<std::uint32_t>(codes.code(value)) << (bits * k);
      }
      packed[words * i + word] = all;
    }
  }
  std::memcpy(to, packed, sizeof(packed));
}

// Encodes a whole group. `codes`: its code_group * bits / 8 bytes.
template <int bits>
[[gnu::always_inline]] inline GroupHeader encode_group(const float* from, std::byte* codes) {
  Group group;
  group.range = range_of(from);
  if (!group.range.is_searched()) {
    std::memset(codes, 0, elements * bits / 8);
    return group.range.unsearched_header();
  }
  const float unit = group.range.unit();
  for (int k = 0; k < elements_of_sum; ++k)
    for (int i = 0; i < error_sums; ++i)
      group.values[error_sums * k + i] = from[elements_of_sum * i + k] * unit;
  const GroupHeader header = best_header<bits>(group);
  const float scale = scale_of(header) * unit;
  if (is_piecewise(header)) {
    write_codes<bits>(group, PiecewiseCodes<bits>(header, scale), codes);
  } else {
    write_codes<bits>(group, UniformCodes<bits>(header, scale), codes);
  }
  return header;
}
STOWAGE_CLONES GroupHeader encode_4(const float* from, std::byte* codes) {
  return encode_group<4>(from, codes);
}
STOWAGE_CLONES GroupHeader encode_8(const float* from, std::byte* codes) {
  return encode_group<8>(from, codes);
}

template <class Levels>
[[gnu::always_inline]] inline void write_levels(const Levels& levels, const std::uint8_t* codes, float power,
                                                float greatest_finite, float* to) {
  for (int i = 0; i < elements; ++i) to[i] = limited(levels.level(codes[i]) * power, greatest_finite);
}

// Decodes a whole group. `codes`: one a byte.
template <int bits>
[[gnu::always_inline]] inline void decode_group(GroupHeader header, const std::uint8_t* codes,
                                                float greatest_finite, float* to) {
  if (is_nan(header)) {
    for (int i = 0; i < elements; ++i) to[i] = std::numeric_limits<float>::quiet_NaN();
  } else if (is_piecewise(header)) {
    write_levels(PiecewiseLevels<bits>(header), codes, power_of(header), greatest_finite, to);
  } else {
    write_levels(UniformLevels<bits>(header), codes, power_of(header), greatest_finite, to);
  }
}
STOWAGE_CLONES void decode_4(GroupHeader header, const std::uint8_t* packed, float greatest_finite,
                             float* to) {
  std::uint8_t codes[elements];
  for (int k = 0; k < elements / 2; ++k) {
    codes[2 * k] = packed[k] & 15;
    codes[2 * k + 1] = packed[k] >> 4;
  }
  decode_group<4>(header, codes, greatest_finite, to);
}
STOWAGE_CLONES void decode_8(GroupHeader header, const std::uint8_t* codes, float greatest_finite,
                             float* to) {
  decode_group<8>(header, codes, greatest_finite, to);
}

// A group of an array, which has at least one element: its elements, codes and header.
struct Place {
  std::int64_t begin, count, codes, code_bytes, header;

  Place(CodeBits bits, std::int64_t all, std::int64_t group)
      : begin(group * code_group),
        count(std::clamp<std::int64_t>(all - begin, 1, code_group)),
        codes(static_cast<std::int64_t>(stowage::code_bytes(begin, bits))),
        code_bytes(static_cast<std::int64_t>(stowage::code_bytes(count, bits))),
        header(static_cast<std::int64_t>(stowage::code_bytes(all, bits)) + group * code_header_bytes) {}
};

template <class T>
void encode_at(const Place& at, CodeBits bits, const T* from, std::byte* to) {
  float buffer[elements];
  const float* values = loaded(at.count, from + at.begin, buffer);
  const auto encode_group = bits == CodeBits::four ? encode_4 : encode_8;
  if (at.count == code_group) {
    write_header(encode_group(values, to + at.codes), to + at.header);
    return;
  }
  float padded[elements];
  std::copy_n(values, at.count, padded);
  std::fill(padded + at.count, padded + code_group, values[at.count - 1]);
  std::byte codes[elements];
  write_header(encode_group(padded, codes), to + at.header);
  // The half behind an odd number of codes of 4 bits is 0.
  if (bits == CodeBits::four && at.count % 2 == 1) codes[at.code_bytes - 1] &= std::byte{15};
  std::copy_n(codes, at.code_bytes, to + at.codes);
}

template <class T>
void decode_at(const Place& at, CodeBits bits, const std::byte* from, T* to) {
  std::uint8_t codes[elements] = {};
  std::memcpy(codes, from + at.codes, static_cast<std::size_t>(at.code_bytes));
  float buffer[elements];
  const auto decode_group = bits == CodeBits::four ? decode_4 : decode_8;
  decode_group(read_header(from + at.header), codes, greatest_decoded<T>, buffer);
  if constexpr (is_narrow<T>) {
    narrow(at.count, buffer, to + at.begin);
  } else {
    std::copy_n(buffer, at.count, to + at.begin);
  }
}

// Calls body(Place) for each group, on any thread.
template <class Body>
void for_each_group(CodeBits bits, std::int64_t count, const Body& body) {
  parallel_for(code_groups(count), groups_of_a_chunk, [&](std::int64_t group, std::int64_t end) {
    for (; group < end; ++group) body(Place(bits, count, group));
  });
}

}  // namespace

template <class T>
void encode(CodeBits bits, std::int64_t count, const T* from, std::byte* to) {
  for_each_group(bits, count, [&](const Place& at) { encode_at(at, bits, from, to); });
}

template <class T>
void decode(CodeBits bits, std::int64_t count, const std::byte* from, T* to) {
  for_each_group(bits, count, [&](const Place& at) { decode_at(at, bits, from, to); });
}

template void encode(CodeBits, std::int64_t, const float*, std::byte*);
template void encode(CodeBits, std::int64_t, const Bfloat16*, std::byte*);
template void encode(CodeBits, std::int64_t, const Float16*, std::byte*);
template void decode(CodeBits, std::int64_t, const std::byte*, float*);
template void decode(CodeBits, std::int64_t, const std::byte*, Bfloat16*);
template void decode(CodeBits, std::int64_t, const std::byte*, Float16*);

}  // namespace stowage::cpu
