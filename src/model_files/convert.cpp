#include "src/model_files/convert.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/math/bfloat16.h"

namespace stowage {
namespace {

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
template <class T>
void store(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

// IEEE 754 binary16: every value is an f32.
float from_half(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000U) << 16U;
  const std::uint32_t exponent = bits >> 10U & 0x1fU;
  const std::uint32_t fraction = bits & 0x3ffU;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000U | fraction << 13U);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23U | fraction << 13U);
  const float tiny = static_cast<float>(fraction) * 0x1p-24F;
  return sign != 0 ? -tiny : tiny;
}

struct Half {
  static constexpr Bytes bytes = 2;
  static double read(const std::byte* from) { return from_half(load<std::uint16_t>(from)); }
};
struct Brain {
  static constexpr Bytes bytes = 2;
  static double read(const std::byte* from) { return static_cast<float>(load<Bfloat16>(from)); }
  static void write(std::byte* to, double value) {
    // Through f32 it would be rounded twice: an f32 between the two neighbours, odd where it is not exact,
    // rounds as the value itself does.
    auto middle = static_cast<float>(value);
    if (std::isfinite(middle) && static_cast<double>(middle) != value) {
      const auto bits = std::bit_cast<std::uint32_t>(middle);
      const bool above = std::abs(static_cast<double>(middle)) > std::abs(value);
      middle = std::bit_cast<float>((above ? bits - 1 : bits) | 1U);
    }
    store(to, Bfloat16(middle));
  }
};
struct Single {
  static constexpr Bytes bytes = 4;
  static double read(const std::byte* from) { return load<float>(from); }
  static void write(std::byte* to, double value) { store(to, static_cast<float>(value)); }
};
struct Double {
  static constexpr Bytes bytes = 8;
  static double read(const std::byte* from) { return load<double>(from); }
  static void write(std::byte* to, double value) { store(to, value); }
};

template <class From, class To>
void convert_run(std::span<const std::byte> values, std::span<std::byte> into) {
  const std::size_t count = std::min(values.size() / From::bytes, into.size() / To::bytes);
  for (std::size_t i = 0; i < count; ++i)
    To::write(into.data() + i * To::bytes, From::read(values.data() + i * From::bytes));
}

template <class From>
void convert_from(std::span<const std::byte> values, DataType to, std::span<std::byte> into) {
  if (to == DataType::f32) return convert_run<From, Single>(values, into);
  if (to == DataType::f64) return convert_run<From, Double>(values, into);
  return convert_run<From, Brain>(values, into);
}

}  // namespace

std::optional<StoredType> stored_type_of(DataType type) {
  switch (type) {
    case DataType::f32:
      return StoredType::f32;
    case DataType::f64:
      return StoredType::f64;
    case DataType::bf16:
      return StoredType::bf16;
    default:
      return {};
  }
}

bool is_real(StoredType type) {
  return type == StoredType::f16 || type == StoredType::bf16 || type == StoredType::f32 ||
         type == StoredType::f64;
}

void convert(StoredType from, std::span<const std::byte> values, DataType to, std::span<std::byte> into) {
  if (stored_type_of(to) == from) {
    std::memcpy(into.data(), values.data(), std::min(values.size(), into.size()));
    return;
  }
  if (from == StoredType::f16) return convert_from<Half>(values, to, into);
  if (from == StoredType::bf16) return convert_from<Brain>(values, to, into);
  if (from == StoredType::f32) return convert_from<Single>(values, to, into);
  return convert_from<Double>(values, to, into);
}

void split_masters(std::span<const std::byte> masters, std::span<std::byte> weights,
                   std::span<std::byte> low) {
  for (std::size_t i = 0; i < masters.size() / 4; ++i) {
    const SplitWeight both = split(load<float>(masters.data() + 4 * i));
    store(weights.data() + 2 * i, both.weight);
    store(low.data() + 2 * i, both.low);
  }
}

void join_masters(std::span<const std::byte> weights, std::span<const std::byte> low,
                  std::span<std::byte> masters) {
  for (std::size_t i = 0; i < masters.size() / 4; ++i) {
    const SplitWeight both{load<Bfloat16>(weights.data() + 2 * i), load<std::int16_t>(low.data() + 2 * i)};
    store(masters.data() + 4 * i, joined(both));
  }
}

}  // namespace stowage
