#include "tests/support/mix_kernel.h"

#include <algorithm>
#include <cmath>

#include "stowage/error.h"

namespace stowage::testing {
namespace {

double load(const Operand& operand, std::int64_t index) {
  switch (operand.tensor->type) {
    case DataType::f32:
      return static_cast<double>(static_cast<const float*>(operand.data)[index]);
    case DataType::f64:
      return static_cast<const double*>(operand.data)[index];
    case DataType::i32:
      return static_cast<double>(static_cast<const std::int32_t*>(operand.data)[index] % 1000) / 1000;
    case DataType::bf16:
    case DataType::i16:
    case DataType::u8:
    case DataType::f16:
      break;
  }
  throw InvalidInput("mix: '" + operand.tensor->name + "' is of a type that it does not take");
}

void store(const Operand& operand, std::int64_t index, double value) {
  switch (operand.tensor->type) {
    case DataType::f32:
      static_cast<float*>(operand.data)[index] = static_cast<float>(value);
      return;
    case DataType::f64:
      static_cast<double*>(operand.data)[index] = value;
      return;
    case DataType::i32:
      static_cast<std::int32_t*>(operand.data)[index] = static_cast<std::int32_t>(value * 1000);
      return;
    case DataType::bf16:
    case DataType::i16:
    case DataType::u8:
    case DataType::f16:
      break;
  }
  throw InvalidInput("mix: '" + operand.tensor->name + "' is of a type that it does not take");
}

// Returns a weight in (-1, 1) that is never 0. Neighbours have different weights.
double weight(std::uint64_t salt, std::uint64_t input, std::uint64_t element) {
  const std::uint64_t mixed = (salt + input * 31 + element * 17 + (element >> 5) * 7) % 64;
  return (static_cast<double>(mixed) - 31.5) / 32;
}

// Returns what `input` adds to element `at` of an output with `size` elements.
double share(const Operand& input, std::uint64_t number, std::uint64_t salt, std::int64_t at,
             std::int64_t size) {
  const std::int64_t elements = input.tensor->elements();
  double sum = 0;
  for (std::int64_t i = at; i < std::max(size, elements); i += size) {
    sum += weight(salt, number, static_cast<std::uint64_t>(i)) * load(input, i % elements);
  }
  return sum;
}

void fill(const LaunchArguments& arguments, std::size_t output, std::uint64_t salt, bool read_workspaces) {
  const Operand& target = arguments.writes[output];
  const std::int64_t size = target.tensor->elements();
  for (std::int64_t at = 0; at < size; ++at) {
    double sum = weight(salt, output, static_cast<std::uint64_t>(at));
    for (std::size_t r = 0; r < arguments.reads.size(); ++r) {
      sum += share(arguments.reads[r], r, salt, at, size);
    }
    for (const Operand& other : arguments.writes) {
      const bool workspace = other.tensor->kind == TensorKind::workspace;
      if (read_workspaces && workspace) sum += load(other, at % other.tensor->elements());
    }
    store(target, at, std::remainder(sum, 2.0));  // stays bounded and keeps every difference
  }
}

}  // namespace

void mix_kernel(const LaunchArguments& arguments) {
  const auto key = arguments.op->attributes.find("key");
  std::uint64_t salt = arguments.step.step * 5 + arguments.step.seed % 64;
  if (key != arguments.op->attributes.end())
    salt += static_cast<std::uint64_t>(std::get<std::int64_t>(key->second));
  const auto is_workspace = [&](std::size_t i) {
    return arguments.writes[i].tensor->kind == TensorKind::workspace;
  };
  for (std::size_t i = 0; i < arguments.writes.size(); ++i) {
    if (is_workspace(i)) fill(arguments, i, salt, false);
  }
  // Write 0 last: it may overwrite a read.
  for (std::size_t i = arguments.writes.size(); i-- > 0;) {
    if (!is_workspace(i)) fill(arguments, i, salt, true);
  }
}

}  // namespace stowage::testing
