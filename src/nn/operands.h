// What the ops of this folder share: judging operands, and in-place backward ops.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stowage/graph_builder.h"

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

// The only written value may take the bytes of `reads[read]`, the gradient, if nobody else needs it.
std::vector<Alias> in_place(const GraphBuilder& builder, Value gradient, std::uint32_t read);

// Of the tokens or targets of the whole batch, what the builder's micro-batch takes: how many, and which
// ones as the attribute that kernels know it by. Throws InvalidInput naming `op` where they do not divide.
std::int64_t tokens_of_micro_batch(const GraphBuilder& builder, const std::string& op, Value tokens);
Attributes token_slice(const GraphBuilder& builder, std::int64_t count);

// Adds the attribute `vocabulary` where fewer columns of logits count than there are (0: all do). Throws
// InvalidInput naming `op` where there are not so many.
void add_vocabulary(Attributes& attributes, const std::string& op, std::int64_t vocabulary,
                    std::int64_t columns);

}  // namespace stowage::nn
