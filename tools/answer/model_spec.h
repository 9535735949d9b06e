// The sizes of a model that a question is about.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "stowage/graph.h"
#include "stowage/moments.h"

namespace stowage {

enum class ModelFamily : std::uint8_t { gpt, bert };

struct ModelSpec {
  ModelFamily family = ModelFamily::gpt;
  std::int64_t layers = 0;
  std::int64_t width = 0;
  std::int64_t heads = 0;
  std::int64_t vocabulary = 0;
  std::int64_t sequence = 0;
  std::int64_t batch = 0;
  std::int64_t micro_batches = 1;
  DataType type = DataType::f32;
  std::optional<std::int64_t> head_tokens{};  // GptConfig's member of this name
  Moments moments = Moments::f32;
  std::int64_t gradient_groups = 1;
  std::int64_t devices = 1;  // devices that train the model together: the ranks of models.h
  bool clips = true;         // gradients are clipped by their norm

  std::int64_t tokens() const { return batch * sequence; }
};

// Returns a text such as "gpt, 24 layers, width 1024, heads 16, vocabulary 50304".
std::string describe(const ModelSpec& spec);

}  // namespace stowage
