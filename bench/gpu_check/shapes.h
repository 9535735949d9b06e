// Models of known shape with random tokens: what gpu_check trains.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "stowage/graph_builder.h"
#include "stowage/moments.h"

namespace stowage::bench {

struct Shape {
  std::string model = "gpt";  // "gpt": causal, pre-norm; "bert": bidirectional, post-norm, masked tokens
  std::int64_t layers = 2;
  std::int64_t width = 64;
  std::int64_t heads = 2;
  std::int64_t vocabulary = 256;
  std::int64_t sequence = 64;
  std::int64_t batch = 4;
  std::optional<std::int64_t> head_tokens;  // tokens whose logits exist at once; nullopt: the model's default
  DataType type = DataType::f32;
  Moments moments = Moments::f32;

  std::int64_t tokens() const { return batch * sequence; }
};

struct ShapedModel {
  Value tokens;   // i32 [batch * sequence]
  Value targets;  // i32 [batch * sequence], negative: ignored
  Graph graph;    // with AdamW
};

// Throws InvalidInput that names a field which does not fit.
ShapedModel build(const Shape& shape);

// Floating-point operations of the model itself for one step, forward and backward, nothing recomputed:
// six for each weight of a product and token, and the two products of attention (half of them where causal).
double model_flops(const Shape& shape);

// One step's inputs, drawn from (seed, step).
struct ShapedBatch {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> targets;
};
void fill(const Shape& shape, std::uint64_t seed, std::uint64_t step, ShapedBatch& batch);

}  // namespace stowage::bench
