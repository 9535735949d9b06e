// Files that an exported model needs beside its weights so that AutoTokenizer gives the same ids.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "src/tokens/tokenizer_json.h"

namespace stowage {
namespace {

// Returns the text of `token`, if the tokenizer or `missing` has it.
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
  // A class that reads only tokenizer.json: the models' own classes would add special tokens.
  std::vector<std::string> members = {
      R"("tokenizer_class": "PreTrainedTokenizerFast")", R"("clean_up_tokenization_spaces": false)",
      fmt::format(R"("model_max_length": {})", positions),
      // The defaults do not fit: transformers 4 passes token types, which GPT-2 would add to its embeddings
      // as tokens; transformers 5 does not, and BERT needs them.
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
