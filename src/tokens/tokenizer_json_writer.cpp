#include "src/tokens/tokenizer_json.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

namespace stowage {
namespace {

// Returns the tokens by rising ids, so that the file's text is always the same.
std::map<std::int32_t, std::string> tokens_by_id(const Vocabulary& vocabulary,
                                                 std::span<const MissingToken> missing) {
  std::map<std::int32_t, std::string> tokens;
  for (const auto& [text, id] : vocabulary.ids()) tokens.emplace(id, text);
  for (const MissingToken& token : missing) tokens.emplace(token.id, texts_of(token.token).front());
  return tokens;
}

bool is_special(std::string_view text) {
  const auto all = special_texts();
  return std::find(all.begin(), all.end(), text) != all.end();
}

std::string added_json(std::int32_t id, std::string_view text, bool late, bool special) {
  return fmt::format(
      R"({{"id":{},"content":{},"single_word":false,"lstrip":false,"rstrip":false,"normalized":{},"special":{}}})",
      id, json_text(text), late, special);
}

std::string added_tokens_json(std::span<const AddedToken> added, std::span<const MissingToken> missing) {
  std::map<std::int32_t, std::string> items;
  for (const AddedToken& token : added)
    items.emplace(token.id, added_json(token.id, token.text, token.late, is_special(token.text)));
  for (const MissingToken& token : missing)
    items.emplace(token.id, added_json(token.id, texts_of(token.token).front(), false, true));
  std::vector<std::string_view> texts;
  for (const auto& [id, text] : items) texts.push_back(text);
  return fmt::format("[{}]", fmt::join(texts, ","));
}

std::string piece(std::string_view kind, std::string_view name, int segment) {
  return fmt::format(R"({{"{}":{{"id":{},"type_id":{}}}}})", kind, json_text(name), segment);
}

// Returns the templates [CLS] A [SEP] and [CLS] A [SEP] B [SEP]; null if [CLS] or [SEP] is missing.
std::string framing_json(const std::map<std::int32_t, std::string>& tokens) {
  const auto find = [&](SpecialToken token) {
    const std::string_view text = texts_of(token).front();
    return std::find_if(tokens.begin(), tokens.end(),
                        [&](const auto& entry) { return entry.second == text; });
  };
  const auto first = find(SpecialToken::classification), last = find(SpecialToken::separator);
  if (first == tokens.end() || last == tokens.end()) return "null";
  const auto special = [](const auto& token) {
    return fmt::format(R"({0}:{{"id":{0},"ids":[{1}],"tokens":[{0}]}})", json_text(token->second),
                       token->first);
  };
  const std::string begin = piece("SpecialToken", first->second, 0) + ',' + piece("Sequence", "A", 0) + ',' +
                            piece("SpecialToken", last->second, 0);
  const std::string second = piece("Sequence", "B", 1) + ',' + piece("SpecialToken", last->second, 1);
  return fmt::format(
      R"({{"type":"TemplateProcessing","single":[{0}],"pair":[{0},{1}],"special_tokens":{{{2},{3}}}}})",
      begin, second, special(first), special(last));
}

}  // namespace

std::string json_text(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

TokenizerJson byte_level_json(std::string merges) {
  const std::string splitter =
      R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true})";
  return {"null", splitter, splitter,
          R"("type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":"",)"
          R"("end_of_word_suffix":"","fuse_unk":false,"byte_fallback":false,"ignore_merges":false,)",
          std::move(merges)};
}

std::string write_tokenizer_json(const TokenizerJson& json, const Vocabulary& vocabulary,
                                 std::span<const AddedToken> added, std::span<const MissingToken> missing,
                                 Framing framing) {
  const auto tokens = tokens_by_id(vocabulary, missing);
  std::vector<std::string> entries;
  for (const auto& [id, text] : tokens) entries.push_back(fmt::format("{}:{}", json_text(text), id));
  return fmt::format(
      R"({{"version":"1.0","truncation":null,"padding":null,"added_tokens":{},"normalizer":{},)"
      R"("pre_tokenizer":{},"post_processor":{},"decoder":{},"model":{{{}"vocab":{{{}}}{}}}}})"
      "\n",
      added_tokens_json(added, missing), json.normalizer, json.pre_tokenizer,
      framing == Framing::pairs ? framing_json(tokens) : "null", json.decoder, json.model,
      fmt::join(entries, ","), json.merges);
}

}  // namespace stowage
