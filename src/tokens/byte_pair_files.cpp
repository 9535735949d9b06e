// GPT-2's vocab.json and merges.txt.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "src/graph/json_field.h"
#include "src/tokens/byte_pair_tokenizer.h"
#include "src/tokens/gpt2_pieces.h"
#include "src/tokens/text_parts.h"
#include "src/tokens/tokenizer_json.h"
#include "stowage/error.h"

namespace stowage {
namespace {

constexpr std::string_view merges_header = "#version";

void read_merges(std::string_view text, const std::string& name, BytePairParts& parts) {
  for_each_line(without_empty_end(text), [&](std::string_view line, std::size_t number) {
    if (line.starts_with(merges_header)) return;
    const std::string where = fmt::format("line {}", number);
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
      throw InvalidInput(
          fmt::format("{}: {} is not two tokens with a space between them; give a merges.txt", name, where));
    }
    parts.add_merge(line.substr(0, space), line.substr(space + 1), name, where);
  });
}

// Returns the special tokens. They stand in the vocabulary like any other token, but no merge makes them.
std::vector<AddedToken> special_tokens_in(const BytePairParts& parts) {
  std::vector<AddedToken> found;
  for (const std::string_view text : special_texts()) {
    const auto id = parts.vocabulary.id(text);
    if (id && !parts.merges.makes(*id)) found.push_back({std::string(text), *id});
  }
  return found;
}

}  // namespace

std::unique_ptr<Tokenizer> read_byte_pair_files(std::string_view vocab_json, const std::string& vocab_name,
                                                std::string_view merges_text, const std::string& merges_name,
                                                const AddedBeside& beside) {
  const JsonSource source{vocab_name, "give a vocab.json of byte pairs, an object of tokens and ids"};
  const nlohmann::json json = parse_json(vocab_json, source);
  BytePairParts parts(vocab_name);
  for (auto& [token, id] : tokens_in(JsonField(json, source))) parts.add_token(std::move(token), id);
  parts.require_bytes();
  read_merges(merges_text, merges_name, parts);
  parts.added = special_tokens_in(parts);
  add_beside(beside, parts.vocabulary, parts.added);
  return make_byte_pair_tokenizer(std::move(parts));
}

std::unique_ptr<Tokenizer> byte_pair_tokenizer(std::string_view vocab_json, std::string_view merges_text) {
  return read_byte_pair_files(vocab_json, "vocab.json", merges_text, "merges.txt");
}

std::unique_ptr<Tokenizer> byte_pair_tokenizer(const BytePairVocabulary& vocabulary) {
  return byte_pair_tokenizer(to_vocab_json(vocabulary), to_merges_text(vocabulary));
}

std::string to_vocab_json(const BytePairVocabulary& vocabulary) {
  std::string text;
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    text += fmt::format("{}{}:{}", id == 0 ? '{' : ',', nlohmann::json(spelled(vocabulary.tokens[id])).dump(),
                        id);
  }
  return (text.empty() ? "{" : text) + "}\n";
}

std::string to_merges_text(const BytePairVocabulary& vocabulary) {
  std::string text = "#version: 0.2\n";
  for (const auto& [first, second] : vocabulary.merges) {
    const auto token = [&](std::int32_t id) {
      return spelled(vocabulary.tokens.at(static_cast<std::size_t>(id)));
    };
    text += token(first) + ' ' + token(second) + '\n';
  }
  return text;
}

}  // namespace stowage
