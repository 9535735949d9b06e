// The sizes of a model that a question is about.
#pragma once

#include <cstdint>
#include <string>

#include "stowage/models.h"
#include "stowage/moments.h"

namespace stowage {

struct ModelSpec {
  const ModelFamily* family = nullptr;  // never null in a question
  ModelConfig config{};                 // `ranks`: the devices that train the model together
  DataType type = DataType::f32;
  Moments moments = Moments::f32;
  bool clips = true;  // gradients are clipped by their norm

  std::int64_t tokens() const { return config.batch * config.sequence; }
};

// Returns a text such as "gpt, 24 layers, width 1024, heads 16, vocabulary 50304".
std::string describe(const ModelSpec& spec);

}  // namespace stowage
