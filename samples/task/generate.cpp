#include "samples/task/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "samples/data/random_stream.h"
#include "samples/task/forward_pass.h"
#include "stowage/error.h"
#include "stowage/evaluate.h"

namespace stowage::samples {
namespace {

// Runs the model on one sample at a time.
class Forward {
 public:
  Forward(const ModelFamily& family, const ModelConfig& config, const ReadParameter& read, std::uint64_t seed)
      : Forward(make(family, config), read, seed, config) {}

  // Returns the logits after the last token of `text`, of which at most the last `sequence` tokens count.
  std::span<const float> logits(std::span<const std::int32_t> text) {
    const auto sequence = static_cast<std::size_t>(config_.sequence);
    if (text.size() > sequence) text = text.last(sequence);
    // Causal attention: what stands behind the text does not matter.
    std::vector<std::int32_t> tokens(sequence, 0);
    std::copy(text.begin(), text.end(), tokens.begin());
    std::memcpy(evaluator_.value(tokens_).data(), tokens.data(), sequence * sizeof(std::int32_t));
    evaluator_.run(0, 0);
    const std::span<const float> all = floats_of(evaluator_.value(logits_));
    return all.subspan((text.size() - 1) * (all.size() / sequence), all.size() / sequence);
  }

 private:
  static SubGraph make(const ModelFamily& family, const ModelConfig& config) {
    GraphBuilder builder;
    const BuiltModel model = family.build(builder, without_dropout(config, 1));
    return up_to(builder.finish_without_update(model.loss), {model.tokens.id, model.logits.id});
  }

  Forward(SubGraph part, const ReadParameter& read, std::uint64_t seed, const ModelConfig& config)
      : config_(config),
        evaluator_(part.graph, cpu_launch_table(), seed),
        tokens_(part.outputs[0]),
        logits_(part.outputs[1]) {
    for (TensorId id = 0; id < part.graph.tensors.size(); ++id) {
      const Tensor& tensor = part.graph.tensor(id);
      if (tensor.kind == TensorKind::parameter) evaluator_.value(id) = read(tensor.name);
    }
  }

  ModelConfig config_;
  Evaluator evaluator_;
  TensorId tokens_;
  TensorId logits_;
};

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

void generate(const ModelFamily& family, const ModelConfig& config, const Tokenizer& tokenizer,
              const ReadParameter& read, const GenerateOptions& options, const EmitText& emit) {
  std::vector<std::int32_t> tokens = tokenizer.encode(options.prompt);
  if (tokens.empty()) throw InvalidInput("the prompt is no token of this vocabulary: give another text");
  ModelConfig seen = config;
  if (!family.learned_positions)
    seen.sequence = std::min(config.sequence, std::ssize(tokens) + static_cast<std::int64_t>(options.tokens));
  Forward model(family, seen, read, options.seed);
  const std::vector<bool> usable = usable_tokens(tokenizer, config.vocabulary);
  for (std::uint64_t i = 0; i < options.tokens; ++i) {
    tokens.push_back(pick(model.logits(tokens), usable, options.temperature, uniform(options.seed, i)));
    if (!emit(text_of_last(tokenizer, tokens, usable))) return;
  }
}

}  // namespace stowage::samples
