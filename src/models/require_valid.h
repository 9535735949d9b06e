// Checks the sizes of every model before anything is built, and splits its batch.
#pragma once

#include <cstdint>
#include <string_view>

#include "stowage/models.h"

namespace stowage {

// The largest model that is built, whether its sizes come from a program's flags, config.json, a checkpoint
// or a config in code: a size out of a file cannot ask for a graph that takes minutes and gigabytes to build.
inline constexpr std::int64_t most_layers = 1024;
inline constexpr std::int64_t most_width = 1 << 20;
// Limit of heads, of tokens of a vocabulary and of a sample, of samples and of micro-batches.
inline constexpr std::int64_t most_of_others = 1 << 24;
inline constexpr std::int64_t most_blocks = 1024;  // of a table
// Limit of the bytes of a step, estimated from above: sums of sizes stay far from 64 bits.
inline constexpr double most_step_bytes = 1e18;

// Throws InvalidInput that begins with `model` and names the field that does not fit.
void require_valid(std::string_view model, const ModelConfig& config);

// Tells the builder the rank's micro-batches and groups, and the codes of activations. Requires a valid
// config.
void set_up(GraphBuilder& builder, const ModelConfig& config);

// The sizes that a config leaves to be computed: heads of keys, width of a head and width within the MLP.
std::int64_t heads_of_keys(const ModelConfig& config);
std::int64_t width_of_head(const ModelConfig& config);
std::int64_t width_of_mlp(const ModelConfig& config);

// Tokens of a sample that a layer's MLP works on: the share `keep_tokens` of the sequence, rounded up. A
// product within 2^-40 of a whole number, relatively, is that number: 0.07 * 100 keeps 7.
std::int64_t kept_tokens(const ModelConfig& config);

// Rows of the embedding's table: the vocabulary, padded.
std::int64_t rows_of_vocabulary(const ModelConfig& config);
// Rows of a block of it; all rows where the table is whole.
std::int64_t rows_of_block(const ModelConfig& config);

}  // namespace stowage
