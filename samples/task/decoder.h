// Decoder: logits of one token after another, on the CPU, in the model's own type.
//
//   tokens      [p0 p1 p2 p3] [t4] [t5] …
//   first call  p0 p1 p2 in one pass, which fills the caches; then p3, which gives logits
//   next calls  t4, then t5: one pass each, which reads every weight once
//
// A pass is the family's own forward graph for so many tokens, run op by op with the kernels of the launch
// table. Attention alone differs: it puts the new keys and values into the layer's cache, and reads those of
// all tokens so far. Passes are at most `most_tokens_of_pass` tokens long.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "samples/task/model_weights.h"
#include "stowage/launch_table.h"

namespace stowage::samples {

inline constexpr std::int64_t most_tokens_of_pass = 128;

// Returns the bytes of the keys and values of so many tokens.
Bytes cache_bytes(const ModelConfig& sizes, DataType type, std::int64_t positions);

class Decoder {
 public:
  // `positions`: tokens that the caches have room for; where positions are learned, at most
  // ModelConfig::sequence. Throws InvalidInput for others. The weights must be there, and outlive this.
  Decoder(const ModelWeights& weights, std::int64_t positions);
  ~Decoder();
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  // Adds tokens behind those so far. Returns the logits behind the last, of each row of the vocabulary's
  // table, valid until the next call. Requires at least one token, and room for all.
  std::span<const float> logits(std::span<const std::int32_t> tokens);

  std::int64_t positions() const { return positions_; }
  std::int64_t room() const { return positions_ - seen_; }
  void forget() { seen_ = 0; }  // begins anew, without tokens

 private:
  class Pass;
  struct Cache {
    std::unique_ptr<std::byte[]> keys, values;
  };

  // Runs tokens behind those so far. Returns the pass's output.
  std::vector<std::byte> run(Pass& pass, std::span<const std::int32_t> tokens);
  void attend(std::size_t layer, std::span<const std::byte> qkv, std::int64_t tokens, std::byte* out);

  const ModelWeights& weights_;
  std::int64_t positions_;
  std::int64_t seen_ = 0;  // tokens in the caches
  LaunchTable table_;
  std::vector<Cache> caches_;                             // one of each layer
  std::map<std::int64_t, std::unique_ptr<Pass>> prompt_;  // by number of tokens; without logits
  std::unique_ptr<Pass> step_;                            // one token, with logits
  std::vector<float> logits_;
};

}  // namespace stowage::samples
