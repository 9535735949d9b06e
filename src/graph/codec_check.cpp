#include "src/graph/codec_check.h"

#include <fmt/format.h>

#include <optional>
#include <vector>

#include "stowage/codec.h"

namespace stowage {
namespace {

std::optional<CodeBits> bits_of(const Op& op) {
  const auto found = op.attributes.find("bits");
  const auto* bits = found == op.attributes.end() ? nullptr : std::get_if<std::int64_t>(&found->second);
  if (bits == nullptr || (*bits != 4 && *bits != 8)) return std::nullopt;
  return static_cast<CodeBits>(*bits);
}

class CodecChecker {
 public:
  explicit CodecChecker(const Graph& graph)
      : graph_(graph), encoders_(graph.tensors.size(), nullptr), decoded_(graph.tensors.size(), false) {}

  std::string run() {
    for (const Op& op : graph_.ops) {
      std::string fault;
      if (op.kernel == "encode") fault = fault_of_encode(op);
      if (op.kernel == "decode") fault = fault_of_decode(op);
      if (!fault.empty())
        return fmt::format("op '{}', whose kernel '{}' is the codec's, {}", op.name, op.kernel, fault);
    }
    for (const Op& op : graph_.ops)
      if (op.kernel == "encode" && !decoded_[op.writes.front()])
        return fmt::format("op '{}' makes codes that no `decode` reads", op.name);
    return {};
  }

 private:
  const Graph& graph_;
  std::vector<const Op*> encoders_;  // by tensor: the op that made the codes
  std::vector<bool> decoded_;        // by tensor: whether a decode reads it

  // Judges what both ops have: operands, bits and sizes.
  std::string fault_of_operands(const Op& op, bool encodes) const {
    if (op.reads.size() != 1 || op.writes.size() != 1) return "does not have one operand each way";
    const Tensor& values = graph_.tensor(encodes ? op.reads.front() : op.writes.front());
    const Tensor& codes = graph_.tensor(encodes ? op.writes.front() : op.reads.front());
    if (!has_codes(values.type))
      return fmt::format("codes '{}' of {}, and codes are of f32, bf16 or f16", values.name,
                         to_string(values.type));
    if (values.elements() > most_coded_elements)
      return fmt::format("codes '{}' of more than 2^48 elements", values.name);
    const std::optional<CodeBits> bits = bits_of(op);
    if (!bits) return "has no attribute `bits` of 4 or 8";
    const Bytes bytes = coded_bytes(values.elements(), *bits);
    if (codes.type != DataType::u8 || codes.bytes() != bytes)
      return fmt::format("has codes '{}' of {} bytes of {}, and {} bytes of u8 hold '{}' in {} bits",
                         codes.name, codes.bytes(), to_string(codes.type), bytes, values.name,
                         static_cast<int>(*bits));
    return {};
  }
  std::string fault_of_encode(const Op& op) {
    std::string fault = fault_of_operands(op, true);
    if (fault.empty()) encoders_[op.writes.front()] = &op;
    return fault;
  }
  std::string fault_of_decode(const Op& op) {
    std::string fault = fault_of_operands(op, false);
    if (!fault.empty()) return fault;
    const TensorId codes = op.reads.front();
    if (encoders_[codes] == nullptr)
      return fmt::format("reads '{}', which no `encode` made", graph_.tensor(codes).name);
    const Op& encoder = *encoders_[codes];
    const Tensor& from = graph_.tensor(encoder.reads.front());
    const Tensor& to = graph_.tensor(op.writes.front());
    if (bits_of(encoder) != bits_of(op) || from.type != to.type || from.elements() != to.elements())
      return fmt::format("decodes otherwise than '{}' encodes: bits, type or elements differ", encoder.name);
    decoded_[codes] = true;
    return {};
  }
};

}  // namespace

std::string fault_of_codes(const Graph& graph) { return CodecChecker(graph).run(); }

}  // namespace stowage
