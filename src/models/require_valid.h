// What every model asks of its sizes before anything is built.
#pragma once

#include <cstdint>
#include <string>

namespace stowage {

struct ModelSizes {
  std::string model;  // begins every message
  std::int64_t layers = 0, width = 0, heads = 0, vocabulary = 0, sequence = 0, batch = 0, micro_batches = 1,
               head_tokens = 0;
  double dropout = 0;
};

// Throws InvalidInput naming the field that does not fit.
void require_valid(const ModelSizes& sizes);

template <class Config>
void require_valid(std::string model, const Config& config) {
  require_valid({std::move(model), config.layers, config.width, config.heads, config.vocabulary,
                 config.sequence, config.batch, config.micro_batches, config.head_tokens, config.dropout});
}

}  // namespace stowage
