#include "src/nn/operands.h"

#include <fmt/format.h>

#include "src/graph/shape.h"
#include "stowage/error.h"

namespace stowage::nn {
namespace {

bool fits(const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& wanted) {
  if (shape.size() != wanted.size()) return false;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (wanted[i] != any && wanted[i] != shape[i]) return false;
  }
  return true;
}

std::string describe_wanted(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (std::int64_t dimension : shape) {
    text += (text.empty() ? "" : ", ") + (dimension == any ? std::string("any") : std::to_string(dimension));
  }
  return "[" + text + "]";
}

}  // namespace

void require_operand(const GraphBuilder& builder, const std::string& op, std::string_view role, Value value,
                     const std::vector<std::int64_t>& shape, DataType type) {
  require(static_cast<bool>(value), op, fmt::format("the {} is missing; give it", role));
  const Tensor& tensor = builder.tensor(value);
  require(tensor.type == type && fits(tensor.shape, shape), op,
          fmt::format("the {} '{}' is {} {}; give it {} {}", role, tensor.name, to_string(tensor.type),
                      describe(tensor.shape), to_string(type), describe_wanted(shape)));
}

void require(bool holds, const std::string& op, const std::string& saying) {
  if (!holds) throw InvalidInput(op + ": " + saying);
}

double elements(const GraphBuilder& builder, Value value) {
  return static_cast<double>(builder.tensor(value).elements());
}

std::int64_t tokens_of_micro_batch(const GraphBuilder& builder, const std::string& op, Value tokens) {
  const std::int64_t all = builder.tensor(tokens).shape[0];
  const std::int64_t parts = builder.micro_batch().parts();
  require(all % parts == 0, op, "the batch does not divide into its micro-batches; change one of them");
  return all / parts;
}

Attributes token_slice(const GraphBuilder& builder, std::int64_t count) {
  if (builder.micro_batch().part() == 0) return {};
  return {{"first_token", count * builder.micro_batch().part()}};
}

std::int64_t require_block(const GraphBuilder& builder, const std::string& op, const TableBlock& block,
                           std::int64_t width) {
  require_operand(builder, op, "block", block.rows, {any, width}, builder.work_type());
  require(block.tokens > 0 && block.first >= 0 && block.first < block.tokens, op,
          fmt::format("a block from row {} on is in no table of {} tokens; give a row of the table",
                      block.first, block.tokens));
  return builder.tensor(block.rows).shape[1];
}

Attributes attributes_of_block(Attributes attributes, const TableBlock& block) {
  attributes["first_row"] = block.first;
  attributes["vocabulary"] = block.tokens;
  return attributes;
}

void add_vocabulary(Attributes& attributes, const std::string& op, std::int64_t vocabulary,
                    std::int64_t columns) {
  require(vocabulary >= 0 && vocabulary <= columns, op,
          fmt::format("a vocabulary of {} is not in logits of {} columns; give 1 to {}, or 0 for all",
                      vocabulary, columns, columns));
  if (vocabulary != 0 && vocabulary != columns) attributes["vocabulary"] = vocabulary;
}

std::vector<Alias> in_place(const GraphBuilder& builder, Value gradient, std::uint32_t read) {
  if (!builder.may_overwrite(gradient)) return {};
  return {{0, read}};
}

}  // namespace stowage::nn
