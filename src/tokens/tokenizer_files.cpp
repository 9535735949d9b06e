// What an exported model needs beside its weights so that AutoTokenizer gives the same ids.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "src/tokens/tokenizer_json.h"

namespace stowage {
namespace {

// The text of `token`, where the tokenizer or `missing` has it.
std::optional<std::string> text_of(SpecialToken token, const Tokenizer& tokenizer,
                                   std::span<const MissingToken> missing) {
  if (const auto id = tokenizer.special(token)) return tokenizer.decode(std::span(&*id, 1));
  const bool is_missing = std::any_of(missing.begin(), missing.end(),
                                      [&](const MissingToken& entry) { return entry.token == token; });
  if (is_missing) return std::string(texts_of(token).front());
  return {};
}

}  // namespace

std::map<std::string, std::string> tokenizer_files(const Tokenizer& tokenizer,
                                                   std::span<const MissingToken> missing,
                                                   std::int64_t positions, Framing framing) {
  // A class that reads tokenizer.json alone: those of the models add special tokens of their own.
  std::vector<std::string> members = {
      R"("tokenizer_class": "PreTrainedTokenizerFast")", R"("clean_up_tokenization_spaces": false)",
      fmt::format(R"("model_max_length": {})", positions),
      // By default transformers 4 has token types too, which GPT-2 would add to
      // its embeddings as tokens, and transformers 5 has none, which BERT needs.
      fmt::format(R"("model_input_names": ["input_ids", {}"attention_mask"])",
                  framing == Framing::pairs ? R"("token_type_ids", )" : "")};
  constexpr std::pair<const char*, SpecialToken> roles[] = {
      {"bos_token", SpecialToken::end_of_text}, {"eos_token", SpecialToken::end_of_text},
      {"unk_token", SpecialToken::unknown},     {"cls_token", SpecialToken::classification},
      {"sep_token", SpecialToken::separator},   {"pad_token", SpecialToken::padding},
      {"mask_token", SpecialToken::mask},
  };
  for (const auto& [role, token] : roles) {
    if (const auto text = text_of(token, tokenizer, missing))
      members.push_back(fmt::format(R"("{}": {})", role, json_text(*text)));
  }
  return {{"tokenizer.json", tokenizer.to_json(missing, framing)},
          {"tokenizer_config.json", fmt::format("{{\n  {}\n}}\n", fmt::join(members, ",\n  "))}};
}

}  // namespace stowage
