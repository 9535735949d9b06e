// Text from a trained model.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "samples/task/model_weights.h"
#include "samples/task/task.h"
#include "stowage/models.h"
#include "stowage/tokenizer.h"

namespace stowage::samples {

struct GenerateOptions {
  std::uint64_t tokens = 0;  // number of tokens to generate
  double temperature = 0.8;
  std::uint64_t seed = 1;
};

// Returns a prompt for an empty one: the token that ends a text or, without one, the first that the
// vocabulary has of: a line's end, [CLS], a dot.
std::string beginning_of_text(const Tokenizer& tokenizer);

// Returns the tokens that a Decoder needs room for, to go on with a prompt of `prompt` tokens by `tokens`:
// all of them or, where positions are learned, at most the model's.
std::int64_t positions_to_generate(const ModelFamily& family, const ModelConfig& sizes, std::size_t prompt,
                                   std::uint64_t tokens);

// Hands each new token to `emit`, until that returns false. On the CPU, in the type of the weights; the same
// tokens for the same weights and options. Tokens that are not usable are never picked. Where positions are
// learned and the last is taken, the model goes on with the last half of them: it sees a shorter text, from
// the first position on. Of a longer prompt it sees the end. Requires a prompt of at least one token.
void generate_tokens(const ModelWeights& weights, std::vector<std::int32_t> prompt,
                     const std::vector<bool>& usable, const GenerateOptions& options,
                     const std::function<bool(std::int32_t)>& emit);

// Hands the text of each new token to `emit`, as generate_tokens. Tokens without a text, and rows that pad
// the vocabulary, are never picked. Throws InvalidInput for a prompt that is no token at all.
void generate(const ModelWeights& weights, const Tokenizer& tokenizer, std::string_view prompt,
              const GenerateOptions& options, const EmitText& emit);

// Returns the token that a draw picks: the first whose cumulative probability, softmax(logits / temperature),
// exceeds `uniform` in [0, 1); at temperature 0 the first of the likeliest ones. Tokens that are not usable
// have no probability; at least one must be usable.
std::int32_t pick(std::span<const float> logits, const std::vector<bool>& usable, double temperature,
                  double uniform);

// Returns which ids below `vocabulary` have a text.
std::vector<bool> usable_tokens(const Tokenizer& tokenizer, std::int64_t vocabulary);

// Bytes for a terminal: well-formed UTF-8 without control characters, line ends and tabs as they are, all
// else as "\xNN". A character may come in pieces.
class TerminalText {
 public:
  std::string add(std::string_view bytes);
  std::string finish();  // returns what is left of an unfinished character

 private:
  std::string begun_;
};

}  // namespace stowage::samples
