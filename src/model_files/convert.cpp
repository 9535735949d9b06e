#include "src/model_files/convert.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/math/bfloat16.h"
#include "kernels/math/float16.h"

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

// A 16-bit type T.
template <class T>
struct Narrow {
  static constexpr Bytes bytes = 2;
  static double read(const std::byte* from) { return static_cast<float>(load<T>(from)); }
  static void write(std::byte* to, double value) {
    // Rounding to f32 and then to T would round twice. An inexact f32 is therefore made odd (rounded to odd):
    // then it rounds as the value itself does.
    auto middle = static_cast<float>(value);
    if (std::isfinite(middle) && static_cast<double>(middle) != value) {
      const auto bits = std::bit_cast<std::uint32_t>(middle);
      const bool above = std::abs(static_cast<double>(middle)) > std::abs(value);
      middle = std::bit_cast<float>((above ? bits - 1 : bits) | 1U);
    }
    store(to, T(middle));
  }
};
using Half = Narrow<Float16>;
using Brain = Narrow<Bfloat16>;
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
  if (to == DataType::f16) return convert_run<From, Half>(values, into);
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
    case DataType::f16:
      return StoredType::f16;
    default:
      return {};
  }
}

DataType data_type_of(StoredType type) {
  if (type == StoredType::bf16) return DataType::bf16;
  if (type == StoredType::f16) return DataType::f16;
  return type == StoredType::f64 ? DataType::f64 : DataType::f32;
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

void split_masters(std::span<const std::byte> masters, DataType weight, std::span<std::byte> weights,
                   std::span<std::byte> low) {
  const auto each = [&](auto split_one) {
    for (std::size_t i = 0; i < masters.size() / 4; ++i) {
      const auto both = split_one(load<float>(masters.data() + 4 * i));
      store(weights.data() + 2 * i, both.weight);
      store(low.data() + sizeof both.low * i, both.low);
    }
  };
  weight == DataType::bf16 ? each([](float master) { return split(master); })
                           : each([](float master) { return split_half(master); });
}

void join_masters(DataType weight, std::span<const std::byte> weights, std::span<const std::byte> low,
                  std::span<std::byte> masters) {
  const auto each = [&](auto both) {
    for (std::size_t i = 0; i < masters.size() / 4; ++i) {
      both.weight = load<decltype(both.weight)>(weights.data() + 2 * i);
      both.low = load<decltype(both.low)>(low.data() + sizeof both.low * i);
      store(masters.data() + 4 * i, joined(both));
    }
  };
  weight == DataType::bf16 ? each(SplitWeight{}) : each(HalfSplitWeight{});
}

}  // namespace stowage
