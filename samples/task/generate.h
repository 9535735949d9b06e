// Text from a trained model.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "samples/task/task.h"
#include "stowage/models.h"
#include "stowage/tokenizer.h"

namespace stowage::samples {

struct GenerateOptions {
  std::string_view prompt;   // prompt, of which the model sees the end
  std::uint64_t tokens = 0;  // number of tokens to generate
  double temperature = 0.8;
  std::uint64_t seed = 1;
};

// Returns a prompt for an empty one: the token that ends a text or, without one, the first that the
// vocabulary has of: a line's end, [CLS], a dot.
std::string beginning_of_text(const Tokenizer& tokenizer);

// Hands the text of each new token to `emit`. On the CPU, one sample of `config`'s sequence length at a time;
// the same tokens for the same parameters and options. Tokens without a text, and rows that pad the
// vocabulary, are never picked. Throws InvalidInput for a prompt that is no token at all.
void generate(const ModelFamily& family, const ModelConfig& config, const Tokenizer& tokenizer,
              const ReadParameter& read, const GenerateOptions& options, const EmitText& emit);

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
