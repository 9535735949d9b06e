#include "src/tokens/tokenizer_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "src/base/printable.h"
#include "src/graph/json_field.h"
#include "src/tokens/byte_pair_tokenizer.h"
#include "src/tokens/vocabulary.h"
#include "src/tokens/word_piece_tokenizer.h"
#include "stowage/error.h"

namespace stowage {
namespace {

constexpr std::size_t most_tokens = static_cast<std::size_t>(Vocabulary::most_ids);

bool is_absent(const JsonField& object, const char* name) {
  return !object.has(name) || object.member(name).is_null();
}

void require_absent(const JsonField& object, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (!is_absent(object, name)) object.member(name).fail("null, which is all that is read here");
  }
}

// Requires that these members are missing or empty: any text in them would change ids.
void require_empty(const JsonField& object, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (is_absent(object, name)) continue;
    const JsonField field = object.member(name);
    if (!field.is_text() || !field.text().empty())
      field.fail("null or empty, which is all that is read here");
  }
}

bool flag(const JsonField& object, const char* name, bool otherwise) {
  return is_absent(object, name) ? otherwise : object.member(name).boolean();
}

void require_flag(const JsonField& object, const char* name, bool otherwise, bool value) {
  if (flag(object, name, otherwise) != value)
    object.member(name).fail(fmt::format("{}, which is all that is read here", value));
}

void require_type(const JsonField& object, const char* name) {
  const JsonField type = object.member("type");
  if (type.text() != name) type.fail(fmt::format("{}, which is all that is read here", name));
}

std::vector<AddedToken> read_added(const JsonField& root) {
  std::vector<AddedToken> added;
  if (is_absent(root, "added_tokens")) return added;
  root.member("added_tokens").list(most_tokens, [&](const JsonField& item) {
    added.push_back(added_token(item, token_id(item.member("id"))));
    return 0;
  });
  return added;
}

// Adds the added tokens. One may be a token of the model or a new one, but its text and its id must not
// belong to two tokens.
void add_to_vocabulary(const JsonField& root, const std::vector<AddedToken>& added, Vocabulary& vocabulary) {
  for (const AddedToken& token : added) {
    const std::string* there = vocabulary.token(token.id);
    const bool same = there != nullptr && *there == token.text;
    if (!same && !vocabulary.add(token.text, token.id)) {
      root.member("added_tokens")
          .refuse(fmt::format("gives '{}' the id {}, which the model's vocabulary does not",
                              printable(token.text), token.id));
    }
  }
}

void read_merge(const JsonField& item, const std::string& where, const std::string& name,
                BytePairParts& parts) {
  if (!item.is_text()) {
    const auto pair = item.list(2, [](const JsonField& token) { return token.text(); });
    if (pair.size() != 2) item.fail("a pair of tokens");
    parts.add_merge(pair[0], pair[1], name, where);
    return;
  }
  const std::string text = item.text();
  const std::size_t space = text.find(' ');
  if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
    item.fail("two tokens with a space between them");
  parts.add_merge(text.substr(0, space), text.substr(space + 1), name, where);
}

// GPT-2's own pattern (gpt2_pieces.h), as written for Split.
constexpr std::string_view gpt2_pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

void require_gpt2_split(const JsonField& split) {
  require_type(split, "Split");
  const JsonField pattern = split.member("pattern");
  if (!pattern.has("Regex") || pattern.member("Regex").text() != gpt2_pattern)
    pattern.fail("GPT-2's own, which is all that is read here");
  const JsonField behavior = split.member("behavior");
  if (behavior.text() != "Isolated") behavior.fail("Isolated, which is all that is read here");
  require_flag(split, "invert", false, false);
}

// Returns a Sequence's members; for anything else, the field itself.
std::vector<JsonField> steps_of(const JsonField& field, const char* members) {
  if (!field.has("type") || field.member("type").text() != "Sequence") return {field};
  constexpr std::size_t most_steps = 16;
  return field.member(members).list(most_steps, [](const JsonField& item) { return item; });
}

// Requires ByteLevel, which cuts a text into GPT-2's pieces, or a Split that does so before ByteLevel.
void require_gpt2_pieces(const JsonField& splitter) {
  const std::vector<JsonField> steps = steps_of(splitter, "pretokenizers");
  if (steps.empty() || steps.size() > 2)
    splitter.fail("ByteLevel, alone or behind a Split, which is all that is read here");
  if (steps.size() == 2) require_gpt2_split(steps.front());
  require_type(steps.back(), "ByteLevel");
  require_flag(steps.back(), "add_prefix_space", true, false);
  require_flag(steps.back(), "use_regex", true, steps.size() == 1);
}

// Adds the file's tokens, then the tokens of the files beside it.
void add_all(const JsonField& root, const AddedBeside& beside, Vocabulary& vocabulary,
             std::vector<AddedToken>& added) {
  added = read_added(root);
  add_to_vocabulary(root, added, vocabulary);
  add_beside(beside, vocabulary, added);
}

std::unique_ptr<Tokenizer> read_byte_pairs(const JsonField& root, const JsonField& model,
                                           const std::string& name, const AddedBeside& beside) {
  if (!is_absent(root, "normalizer") && !steps_of(root.member("normalizer"), "normalizers").empty())
    root.member("normalizer").fail("null, which is all that is read here");
  require_gpt2_pieces(root.member("pre_tokenizer"));
  if (beside.setting("add_prefix_space").value_or(false)) beside.refuse("add_prefix_space", true, name);
  require_absent(model, {"dropout"});
  require_empty(model, {"unk_token", "continuing_subword_prefix", "end_of_word_suffix"});
  require_flag(model, "byte_fallback", false, false);
  require_flag(model, "ignore_merges", false, false);

  BytePairParts parts(name);
  for (auto& [token, id] : tokens_in(model.member("vocab"))) parts.add_token(std::move(token), id);
  parts.require_bytes();
  std::size_t count = 0;
  model.member("merges").list(most_tokens, [&](const JsonField& item) {
    read_merge(item, fmt::format("'model.merges[{}]'", count++), name, parts);
    return 0;
  });
  add_all(root, beside, parts.vocabulary, parts.added);
  return make_byte_pair_tokenizer(std::move(parts));
}

WordPieceOptions read_bert_normalizer(const JsonField& normalizer) {
  require_type(normalizer, "BertNormalizer");
  WordPieceOptions options;
  options.clean_text = flag(normalizer, "clean_text", true);
  options.spaced_cjk = flag(normalizer, "handle_chinese_chars", true);
  options.lower_case = flag(normalizer, "lowercase", true);
  if (!is_absent(normalizer, "strip_accents"))
    options.strip_accents = normalizer.member("strip_accents").boolean();
  return options;
}

// Requires equal settings in both files: BERT's classes follow tokenizer_config.json and its defaults.
void require_alike(const WordPieceOptions& options, const AddedBeside& beside, const std::string& name) {
  if (beside.config.empty()) return;
  const auto require = [&](const char* setting, bool otherwise, bool value) {
    const auto given = beside.setting(setting);
    if (!given && beside.any_class) return;
    if (given.value_or(otherwise) != value) beside.refuse(setting, given.value_or(otherwise), name);
  };
  require("do_lower_case", true, options.lower_case);
  require("tokenize_chinese_chars", true, options.spaced_cjk);
  require("strip_accents", options.lower_case, options.strip_accents.value_or(options.lower_case));
}

std::unique_ptr<Tokenizer> read_word_pieces(const JsonField& root, const JsonField& model,
                                            const std::string& name, const AddedBeside& beside) {
  WordPieceParts parts;
  parts.options = read_bert_normalizer(root.member("normalizer"));
  require_alike(parts.options, beside, name);
  require_type(root.member("pre_tokenizer"), "BertPreTokenizer");
  const JsonField vocab = model.member("vocab");
  for (auto& [token, id] : tokens_in(vocab)) {
    if (!parts.vocabulary.add(token, id)) vocab.refuse(fmt::format("gives the id {} to two tokens", id));
  }
  const JsonField unknown = model.member("unk_token");
  const auto unknown_id = parts.vocabulary.id(unknown.text());
  if (!unknown_id) unknown.fail("a token of the vocabulary");
  parts.unknown = *unknown_id;
  parts.prefix = model.member("continuing_subword_prefix").text();
  const JsonField most = model.member("max_input_chars_per_word");
  if (most.integer() < 0) most.fail("a count");
  parts.most_word_characters = static_cast<std::size_t>(most.integer());
  add_all(root, beside, parts.vocabulary, parts.added);
  return make_word_piece_tokenizer(std::move(parts));
}

}  // namespace

std::unique_ptr<Tokenizer> read_tokenizer_json(std::string_view text, const std::string& name,
                                               const AddedBeside& beside) {
  const JsonSource source{name, "give the tokenizer.json of a byte-level BPE or a BERT model"};
  const nlohmann::json json = parse_json(text, source);
  const JsonField root(json, source);
  const JsonField model = root.member("model");
  // Files of older versions have no type.
  const std::string type =
      is_absent(model, "type") ? (model.has("merges") ? "BPE" : "WordPiece") : model.member("type").text();
  if (type == "BPE") return read_byte_pairs(root, model, name, beside);
  if (type == "WordPiece") return read_word_pieces(root, model, name, beside);
  model.member("type").fail("BPE or WordPiece, which is all that is read here");
}

std::unique_ptr<Tokenizer> tokenizer_from_json(std::string_view text) {
  return read_tokenizer_json(text, "tokenizer.json");
}

std::int32_t token_id(const JsonField& field) {
  const std::int64_t id = field.integer();
  if (id < 0 || id >= Vocabulary::most_ids)
    field.fail(fmt::format("an id from 0 to {}", Vocabulary::most_ids - 1));
  return static_cast<std::int32_t>(id);
}

std::vector<std::pair<std::string, std::int32_t>> tokens_in(const JsonField& field) {
  std::vector<std::pair<std::string, std::int32_t>> tokens;
  for (const auto& [token, id] : field.members(static_cast<std::size_t>(Vocabulary::most_ids)))
    tokens.emplace_back(token, token_id(id));
  return tokens;
}

}  // namespace stowage
