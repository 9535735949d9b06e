// Helpers of this folder's ops: checks of operands, and in-place backward ops.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stowage/graph_builder.h"
#include "stowage/nn.h"

namespace stowage::nn {

inline constexpr std::int64_t any = -1;  // a dimension that may have any size

// Throws InvalidInput that names `op`, the operand's role and what it should be, unless `value` has
// this shape and type.
void require_operand(const GraphBuilder& builder, const std::string& op, std::string_view role, Value value,
                     const std::vector<std::int64_t>& shape, DataType type);

// Throws InvalidInput "OP: SAYING" unless `holds`.
void require(bool holds, const std::string& op, const std::string& saying);

// Elements of a tensor, as a factor of an op's cost.
double elements(const GraphBuilder& builder, Value value);

// Returns an alias that lets the only written value take the bytes of `reads[read]`, the gradient, if no
// other op needs it; else none.
std::vector<Alias> in_place(const GraphBuilder& builder, Value gradient, std::uint32_t read);

// The part of the whole batch's tokens or targets that the builder's micro-batch takes: its count, and the
// attribute that tells kernels which part. Throw InvalidInput naming `op` if the tokens do not divide.
std::int64_t tokens_of_micro_batch(const GraphBuilder& builder, const std::string& op, Value tokens);
Attributes token_slice(const GraphBuilder& builder, std::int64_t count);

// Requires that the block is a matrix of the work type with `width` columns (any: any width), whose first row
// is one of the table's tokens. Returns the columns. Throws InvalidInput naming `op`.
std::int64_t require_block(const GraphBuilder& builder, const std::string& op, const TableBlock& block,
                           std::int64_t width);
// Returns `attributes` and those that say which rows of the table the block is.
Attributes attributes_of_block(Attributes attributes, const TableBlock& block);

// Adds the attribute `vocabulary` if fewer than all columns of logits count (0: all do). Throws InvalidInput
// naming `op` if there are fewer columns than that.
void add_vocabulary(Attributes& attributes, const std::string& op, std::int64_t vocabulary,
                    std::int64_t columns);

}  // namespace stowage::nn
