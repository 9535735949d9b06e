// KernelCall: a launch as a kernel's adapter sees it.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "kernels/math/bfloat16.h"
#include "kernels/math/float16.h"
#include "kernels/math/philox.h"
#include "stowage/error.h"
#include "stowage/launch_table.h"

namespace stowage {

// Gives operands by type and attributes by name. Throws InvalidInput that names the op and its kernel if they
// are not as launch_table.h says.
class KernelCall {
 public:
  explicit KernelCall(const LaunchArguments& arguments) : arguments_(arguments) {}

  std::size_t reads() const { return arguments_.reads.size(); }
  const StepContext& step() const { return arguments_.step; }

  std::size_t writes() const { return arguments_.writes.size(); }

  void expect(std::size_t least_reads, std::size_t most_reads, std::size_t writes) const {
    expect(least_reads, most_reads, writes, writes);
  }
  void expect(std::size_t least_reads, std::size_t most_reads, std::size_t least_writes,
              std::size_t most_writes) const {
    if (reads() < least_reads || reads() > most_reads) fail("has the wrong number of inputs");
    if (writes() < least_writes || writes() > most_writes) fail("has the wrong number of outputs");
  }

  template <class T>
  const T* read(std::size_t index) const {
    return pointer<T>(arguments_.reads[index]);
  }
  DataType read_type(std::size_t index) const { return arguments_.reads[index].tensor->type; }
  DataType written_type(std::size_t index) const { return arguments_.writes[index].tensor->type; }
  // Null if the op leaves the operand out.
  template <class T>
  const T* read_if_present(std::size_t index) const {
    return index < reads() ? read<T>(index) : nullptr;
  }
  template <class T>
  T* write(std::size_t index) const {
    return pointer<T>(arguments_.writes[index]);
  }

  bool in_place(std::size_t write, std::size_t read) const {
    return arguments_.writes[write].data == arguments_.reads[read].data;
  }

  // The graph's work type: the type of the first input that is not i32.
  DataType work_type() const {
    for (const Operand& operand : arguments_.reads) {
      if (operand.tensor->type != DataType::i32) return operand.tensor->type;
    }
    fail("has no input to compute with");
  }

  // Scratch of at least `bytes`, of any type.
  template <class T>
  T* workspace(std::size_t index, Bytes bytes) const {
    if (arguments_.writes[index].tensor->bytes() < bytes) fail("has too small a workspace");
    return static_cast<T*>(arguments_.writes[index].data);
  }
  // The undo record of an update, of at least `bytes`.
  std::byte* undo_record(Bytes bytes) const {
    if (arguments_.record.size() < bytes) fail("has too small an undo record");
    return arguments_.record.data();
  }
  // The native stream of the lane; null on the CPU.
  void* stream() const { return arguments_.stream; }

  std::int64_t elements(std::size_t index) const { return arguments_.reads[index].tensor->elements(); }
  std::int64_t rows(std::size_t index) const { return matrix(arguments_.reads[index]).front(); }
  std::int64_t columns(std::size_t index) const { return matrix(arguments_.reads[index]).back(); }
  std::int64_t written_elements(std::size_t index) const {
    return arguments_.writes[index].tensor->elements();
  }
  std::int64_t written_rows(std::size_t index) const { return matrix(arguments_.writes[index]).front(); }

  bool has(std::string_view attribute) const { return arguments_.op->attributes.contains(attribute); }

  std::int64_t integer(std::string_view name) const {
    if (const auto* value = std::get_if<std::int64_t>(&attribute(name))) return *value;
    fail("needs the integer attribute '" + std::string(name) + "'");
  }
  // 0 if the op leaves the attribute out.
  std::int64_t integer_if_present(std::string_view name) const {
    if (!has(name)) return 0;
    const std::int64_t value = integer(name);
    if (value < 0) fail("has a negative attribute '" + std::string(name) + "'");
    return value;
  }
  std::int64_t positive(std::string_view name) const {
    const std::int64_t value = integer(name);
    if (value <= 0) fail("needs a positive attribute '" + std::string(name) + "'");
    return value;
  }
  std::int64_t power_of_two(std::string_view name) const {
    const std::int64_t value = positive(name);
    if (!std::has_single_bit(static_cast<std::uint64_t>(value)))
      fail("needs a power of two as attribute '" + std::string(name) + "'");
    return value;
  }
  // Returns how many of `elements` elements count: the attribute `count`, or all.
  std::int64_t counted(std::int64_t elements) const {
    if (!has("count")) return elements;
    const std::int64_t count = integer_if_present("count");
    if (count > elements) fail("counts more elements than there are");
    return count;
  }
  double real(std::string_view name) const {
    if (const auto* value = std::get_if<double>(&attribute(name))) return *value;
    fail("needs the real attribute '" + std::string(name) + "'");
  }
  const std::string& text(std::string_view name) const {
    if (const auto* value = std::get_if<std::string>(&attribute(name))) return *value;
    fail("needs the text attribute '" + std::string(name) + "'");
  }
  RandomStream random() const {
    return {step().seed, static_cast<std::uint64_t>(integer("key")), step().step,
            static_cast<std::uint64_t>(integer_if_present("first_element"))};
  }

  // Input `index` holds the tokens or targets of the whole batch, of which the op takes `count`.
  struct TokenSlice {
    const std::int32_t* all = nullptr;
    std::int64_t batch = 0;  // tokens
    std::int64_t first = 0;

    const std::int32_t* data() const { return all + first; }
  };
  TokenSlice tokens(std::size_t index, std::int64_t count) const {
    const TokenSlice slice{read<std::int32_t>(index), elements(index), integer_if_present("first_token")};
    if (slice.first > slice.batch || count > slice.batch - slice.first)
      fail("takes more tokens than the batch has");
    return slice;
  }

  // Returns how many of the logits' `columns` count: the attribute `vocabulary`, or all.
  std::int64_t vocabulary(std::int64_t columns) const {
    const std::int64_t given = integer_if_present("vocabulary");
    if (given > columns) fail("has a vocabulary larger than its logits");
    return given == 0 ? columns : given;
  }

  [[noreturn]] void fail(const std::string& problem) const {
    const Op& op = *arguments_.op;
    throw InvalidInput("op '" + op.name + "' (kernel '" + op.kernel + "') " + problem +
                       "; build it as include/stowage/launch_table.h says");
  }

 private:
  template <class T>
  static constexpr DataType type_of() {
    if (std::is_same_v<T, float>) return DataType::f32;
    if (std::is_same_v<T, Bfloat16>) return DataType::bf16;
    if (std::is_same_v<T, Float16>) return DataType::f16;
    if (std::is_same_v<T, std::int16_t>) return DataType::i16;
    if (std::is_same_v<T, std::uint8_t>) return DataType::u8;
    return std::is_same_v<T, double> ? DataType::f64 : DataType::i32;
  }

  template <class T>
  T* pointer(const Operand& operand) const {
    if (operand.tensor->type != type_of<T>())
      fail("does not take '" + operand.tensor->name + "' in its type");
    return static_cast<T*>(operand.data);
  }

  const std::vector<std::int64_t>& matrix(const Operand& operand) const {
    const Tensor& tensor = *operand.tensor;
    if (tensor.shape.size() != 2 || tensor.shape[0] <= 0 || tensor.shape[1] <= 0) {
      fail("needs '" + tensor.name + "' to be a matrix that is not empty");
    }
    return tensor.shape;
  }

  const Attribute& attribute(std::string_view name) const {
    const auto found = arguments_.op->attributes.find(name);
    if (found == arguments_.op->attributes.end()) fail("lacks the attribute '" + std::string(name) + "'");
    return found->second;
  }

  const LaunchArguments& arguments_;
};

}  // namespace stowage
