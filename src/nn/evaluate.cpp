#include "stowage/evaluate.h"

#include <fmt/format.h>

#include <Random123/philox.h>
#include <array>
#include <cmath>
#include <cstring>
#include <numbers>

#include "kernels/math/bfloat16.h"
#include "kernels/math/float16.h"
#include "src/base/parallel_for.h"
#include "stowage/error.h"

namespace stowage {
namespace {

// FNV-1a.
std::uint64_t hash(std::string_view text) {
  std::uint64_t value = 0xcbf29ce484222325U;
  for (char c : text) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return value;
}

std::uint32_t low(std::uint64_t value) { return static_cast<std::uint32_t>(value); }
std::uint32_t high(std::uint64_t value) { return static_cast<std::uint32_t>(value >> 32U); }

// Returns two standard normal draws (Box & Muller, "A Note on the Generation of Random Normal Deviates").
std::array<double, 2> normal_pair(std::uint64_t seed, std::uint64_t name, std::uint64_t pair) {
  auto bits = r123::Philox4x32{}({{low(pair), high(pair), low(name), high(name)}}, {{low(seed), high(seed)}});
  auto mantissa = [&](std::size_t i) {
    return static_cast<double>(((std::uint64_t{bits[i]} << 32U) | bits[i + 1]) >> 11U);
  };
  double radius = std::sqrt(-2 * std::log((mantissa(0) + 1) * 0x1p-53));
  double angle = 2 * std::numbers::pi * (mantissa(2) * 0x1p-53);
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

template <class T>
T narrowed(double value) {
  return static_cast<T>(value);
}
template <>
Bfloat16 narrowed(double value) {
  return Bfloat16(static_cast<float>(value));
}

template <>
Float16 narrowed(double value) {
  return Float16(static_cast<float>(value));
}

template <class T>
void fill_normal(const Tensor& tensor, std::uint64_t seed, std::byte* value) {
  const auto [mean, deviation, first] = tensor.initializer;
  std::int64_t count = tensor.elements();
  std::uint64_t name = hash(tensor.name);
  const std::int64_t first_pair = first / 2;
  auto store = [&, mean = mean, deviation = deviation](std::int64_t i, double normal) {
    const double drawn = mean + deviation * normal;
    auto element = narrowed<T>(drawn);
    std::memcpy(value + i * static_cast<std::int64_t>(sizeof(T)), &element, sizeof(T));
  };
  parallel_for((count + 1) / 2, 4096, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t pair = begin; pair < end; ++pair) {
      auto normals = deviation == 0 ? std::array<double, 2>{}
                                    : normal_pair(seed, name, static_cast<std::uint64_t>(first_pair + pair));
      store(2 * pair, normals[0]);
      if (2 * pair + 1 < count) store(2 * pair + 1, normals[1]);
    }
  });
}

}  // namespace

void initialize(const Tensor& tensor, std::uint64_t seed, std::span<std::byte> value) {
  if (value.size() != tensor.bytes()) {
    throw InvalidInput(
        fmt::format("initialize '{}': {} bytes given; give {}", tensor.name, value.size(), tensor.bytes()));
  }
  switch (tensor.type) {
    case DataType::f32:
      return fill_normal<float>(tensor, seed, value.data());
    case DataType::f64:
      return fill_normal<double>(tensor, seed, value.data());
    case DataType::bf16:
      return fill_normal<Bfloat16>(tensor, seed, value.data());
    case DataType::f16:
      return fill_normal<Float16>(tensor, seed, value.data());
    case DataType::i32:
    case DataType::i16:
    case DataType::u8:
      break;
  }
  throw InvalidInput(fmt::format("initialize '{}': it is {}, which has no initial draw; set it instead",
                                 tensor.name, to_string(tensor.type)));
}

Evaluator::Evaluator(const Graph& graph, const LaunchTable& table, std::uint64_t seed)
    : graph_(graph), table_(table), seed_(seed) {
  check(graph_);
  for (const Op& op : graph_.ops) table_.find(op);
  values_.reserve(graph_.tensors.size());
  for (const Tensor& tensor : graph_.tensors) {
    values_.emplace_back(tensor.kind == TensorKind::slice ? 0 : tensor.bytes());
    if (tensor.kind == TensorKind::parameter) initialize(tensor, seed, values_.back());
  }
}

void Evaluator::run(std::uint64_t step, double learning_rate, double loss_scale) {
  auto operands = [&](const std::vector<TensorId>& tensors) {
    std::vector<Operand> all;
    for (TensorId id : tensors)
      all.push_back({values_[graph_.whole_of(id)].data() + graph_.offset_in_whole(id), &graph_.tensors[id]});
    return all;
  };
  for (const Op& op : graph_.ops) {
    std::vector<Operand> reads = operands(op.reads);
    std::vector<Operand> writes = operands(op.writes);
    table_.find(op)({&op, reads, writes, {step, seed_, learning_rate, true, loss_scale, 0}, nullptr});
  }
}

}  // namespace stowage
