#include "src/graph/finite.h"

#include <cstring>

namespace stowage {
namespace {

// A floating-point value is infinite or NaN if all bits of its exponent, `exponent`, are set. It is NaN if
// any bit below them is set too.
template <class Bits, Bits exponent>
std::optional<NonFiniteElement> first_with_full_exponent(std::span<const std::byte> values) {
  constexpr Bits below = static_cast<Bits>((exponent & (~exponent + 1)) - 1);
  for (std::size_t offset = 0; offset + sizeof(Bits) <= values.size(); offset += sizeof(Bits)) {
    Bits bits = 0;
    std::memcpy(&bits, values.data() + offset, sizeof bits);
    if ((bits & exponent) == exponent) return NonFiniteElement{offset / sizeof(Bits), (bits & below) != 0};
  }
  return std::nullopt;
}

}  // namespace

std::optional<NonFiniteElement> first_non_finite(DataType type, std::span<const std::byte> values) {
  switch (type) {
    case DataType::f32:
      return first_with_full_exponent<std::uint32_t, 0x7f800000U>(values);
    case DataType::f64:
      return first_with_full_exponent<std::uint64_t, 0x7ff0000000000000U>(values);
    case DataType::bf16:
      return first_with_full_exponent<std::uint16_t, 0x7f80U>(values);
    case DataType::f16:
      return first_with_full_exponent<std::uint16_t, 0x7c00U>(values);
    case DataType::i32:
    case DataType::i16:
    case DataType::u8:
      break;
  }
  return std::nullopt;
}

}  // namespace stowage
