#include "samples/task/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "samples/data/random_stream.h"
#include "samples/task/decoder.h"
#include "stowage/error.h"

namespace stowage::samples {
namespace {

// Returns a uniform number in [0, 1) of 53 bits.
double uniform(std::uint64_t seed, std::uint64_t index) {
  return static_cast<double>(random_bits(seed, RandomStream::generation, index, 0) >> 11) * 0x1p-53;
}

// Not every id below the vocabulary's size need be a token.
bool has_text(const Tokenizer& tokenizer, std::int32_t id) {
  try {
    static_cast<void>(tokenizer.decode(std::span(&id, 1)));
    return true;
  } catch (const InvalidInput&) {
    return false;
  }
}

// Returns what the last of `tokens` adds to the text of the tokens before it.
std::string text_of_last(const Tokenizer& tokenizer, std::span<const std::int32_t> tokens,
                         const std::vector<bool>& usable) {
  const std::span<const std::int32_t> pair = tokens.last(std::min<std::size_t>(tokens.size(), 2));
  if (pair.size() < 2 || !usable[static_cast<std::size_t>(pair[0])]) return tokenizer.decode(pair.last(1));
  const std::string both = tokenizer.decode(pair);
  return both.substr(std::min(tokenizer.decode(pair.first(1)).size(), both.size()));
}

std::string hexadecimal(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) text += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return text;
}

// Returns how many bytes a character has that begins with this byte; 0 if no character does.
std::size_t length_of_character(unsigned char first) {
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first < 0xe0) return 2;
  if (first >= 0xe0 && first < 0xf0) return 3;
  return first >= 0xf0 && first < 0xf5 ? 4 : 0;
}

// Returns whether the bytes of one character may be written to a terminal.
bool is_shown(std::string_view bytes) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned char first = byte(0);
  if (bytes.size() == 1) return (first >= 0x20 && first < 0x7f) || first == '\n' || first == '\t';
  const unsigned char second = byte(1);
  if (first == 0xc2) return second >= 0xa0;  // C1 control characters are refused
  if (first == 0xe0) return second >= 0xa0;  // from here on, overlong forms and surrogates are refused
  if (first == 0xed) return second < 0xa0;
  if (first == 0xf0) return second >= 0x90;
  return first != 0xf4 || second < 0x90;
}

}  // namespace

std::int32_t pick(std::span<const float> logits, const std::vector<bool>& usable, double temperature,
                  double uniform) {
  double largest = -std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < usable.size(); ++i) {
    if (usable[i]) largest = std::max(largest, static_cast<double>(logits[i]));
  }
  const auto weight = [&](std::size_t i) -> double {
    if (temperature == 0) return usable[i] && static_cast<double>(logits[i]) == largest ? 1 : 0;
    return usable[i] ? std::exp((static_cast<double>(logits[i]) - largest) / temperature) : 0;
  };
  double total = 0;
  for (std::size_t i = 0; i < usable.size(); ++i) total += weight(i);
  double sum = 0;
  std::size_t last = 0;
  for (std::size_t i = 0; i < usable.size(); ++i) {
    if (!usable[i]) continue;
    last = i;
    sum += weight(i);
    if (sum > (temperature == 0 ? 0 : uniform * total)) break;
  }
  return static_cast<std::int32_t>(last);
}

std::vector<bool> usable_tokens(const Tokenizer& tokenizer, std::int64_t vocabulary) {
  const auto count = std::min<std::int64_t>(vocabulary, tokenizer.vocabulary_size());
  std::vector<bool> usable(static_cast<std::size_t>(count));
  for (std::int32_t id = 0; id < count; ++id) usable[static_cast<std::size_t>(id)] = has_text(tokenizer, id);
  return usable;
}

std::string TerminalText::add(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (!begun_.empty() && (byte & 0xc0U) != 0x80) text += finish();
    begun_.push_back(c);
    const std::size_t length = length_of_character(static_cast<unsigned char>(begun_[0]));
    if (begun_.size() < length) continue;
    text += length > 0 && is_shown(begun_) ? begun_ : hexadecimal(begun_);
    begun_.clear();
  }
  return text;
}

std::string TerminalText::finish() {
  std::string text = hexadecimal(begun_);
  begun_.clear();
  return text;
}

std::string beginning_of_text(const Tokenizer& tokenizer) {
  if (const auto end = tokenizer.special(SpecialToken::end_of_text))
    return tokenizer.decode(std::span(&*end, 1));
  if (!tokenizer.encode("\n").empty()) return "\n";
  const auto first = tokenizer.special(SpecialToken::classification);
  return first ? tokenizer.decode(std::span(&*first, 1)) : ".";
}

std::int64_t positions_to_generate(const ModelFamily& family, const ModelConfig& sizes, std::size_t prompt,
                                   std::uint64_t tokens) {
  const auto all = static_cast<std::int64_t>(prompt + std::max<std::uint64_t>(tokens, 1)) - 1;
  return family.learned_positions ? std::min(sizes.sequence, all) : all;
}

void generate_tokens(const ModelWeights& weights, std::vector<std::int32_t> prompt,
                     const std::vector<bool>& usable, const GenerateOptions& options,
                     const std::function<bool(std::int32_t)>& emit) {
  std::vector<std::int32_t>& tokens = prompt;
  Decoder decoder(weights,
                  positions_to_generate(weights.family(), weights.sizes(), tokens.size(), options.tokens));
  std::size_t added = tokens.size();  // tokens that the decoder has not seen
  for (std::uint64_t i = 0; i < options.tokens; ++i) {
    if (static_cast<std::int64_t>(added) > decoder.room()) {
      decoder.forget();
      const std::int64_t kept = i == 0 ? decoder.positions() : (decoder.positions() + 1) / 2;
      added = std::min(tokens.size(), static_cast<std::size_t>(kept));
    }
    const std::span<const float> logits = decoder.logits(std::span(tokens).last(added));
    tokens.push_back(pick(logits, usable, options.temperature, uniform(options.seed, i)));
    added = 1;
    if (!emit(tokens.back())) return;
  }
}

void generate(const ModelWeights& weights, const Tokenizer& tokenizer, std::string_view prompt,
              const GenerateOptions& options, const EmitText& emit) {
  std::vector<std::int32_t> tokens = tokenizer.encode(prompt);
  if (tokens.empty()) throw InvalidInput("the prompt is no token of this vocabulary: give another text");
  const std::vector<bool> usable = usable_tokens(tokenizer, weights.sizes().vocabulary);
  generate_tokens(weights, tokens, usable, options, [&](std::int32_t token) {
    tokens.push_back(token);
    return emit(text_of_last(tokenizer, tokens, usable));
  });
}

}  // namespace stowage::samples
