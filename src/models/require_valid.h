// Checks the sizes of every model before anything is built, and splits its batch.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "stowage/graph_builder.h"

namespace stowage {

// The largest model that is built, whether its sizes come from a program's flags, config.json, a checkpoint
// or a config in code: a size out of a file cannot ask for a graph that takes minutes and gigabytes to build.
inline constexpr std::int64_t most_layers = 1024;
inline constexpr std::int64_t most_width = 1 << 20;
// Limit of heads, of tokens of a vocabulary and of a sample, of samples and of micro-batches.
inline constexpr std::int64_t most_of_others = 1 << 24;
// Limit of the bytes of a step, estimated from above: sums of sizes stay far from 64 bits.
inline constexpr double most_step_bytes = 1e18;

struct ModelSizes {
  std::string model;  // begins every message
  std::int64_t layers = 0, width = 0, heads = 0, vocabulary = 0, sequence = 0, batch = 0, micro_batches = 1,
               head_tokens = 0, padded_vocabulary = 0;
  double epsilon = 0;
  std::vector<std::pair<const char*, double>> dropouts;  // rates with their fields' names
  std::int64_t gradient_groups = 1, rank = 0, ranks = 1;
};

// Throws InvalidInput naming the field that does not fit.
void require_valid(const ModelSizes& sizes);

template <class Config>
void require_valid(std::string model, const Config& config) {
  ModelSizes sizes{std::move(model),
                   config.layers,
                   config.width,
                   config.heads,
                   config.vocabulary,
                   config.sequence,
                   config.batch,
                   config.micro_batches,
                   config.head_tokens.value_or(0),
                   config.padded_vocabulary,
                   config.epsilon,
                   {{"dropout", config.dropout}, {"attention_dropout", config.attention_dropout.value_or(0)}},
                   config.gradient_groups,
                   config.rank,
                   config.ranks};
  if constexpr (requires { config.residual_dropout; }) {
    sizes.dropouts.emplace_back("embedding_dropout", config.embedding_dropout.value_or(0));
    sizes.dropouts.emplace_back("residual_dropout", config.residual_dropout.value_or(0));
  }
  require_valid(sizes);
}

// Tells the builder the rank's micro-batches and groups. Requires a valid config.
template <class Config>
void split_batch(GraphBuilder& builder, const Config& config) {
  const auto number = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
  builder.split_batch(number(config.micro_batches / config.ranks),
                      number(config.gradient_groups / config.ranks),
                      {number(config.rank), number(config.ranks)});
}

// Rows of the embedding's table: the vocabulary, padded.
template <class Config>
std::int64_t rows_of_vocabulary(const Config& config) {
  return config.padded_vocabulary == 0 ? config.vocabulary : config.padded_vocabulary;
}

}  // namespace stowage
