#include "src/tokens/word_piece_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "src/tokens/bert_words.h"
#include "src/tokens/text_parts.h"
#include "src/tokens/tokenizer_json.h"
#include "src/tokens/unicode.h"
#include "stowage/error.h"

namespace stowage {
namespace {

// Finds the longest token of one kind that a text begins with.
class LongestToken {
 public:
  void add(std::string_view text, std::int32_t id) {
    ids_.insert_or_assign(std::string(text), id);
    longest_ = std::max(longest_, text.size());
  }
  // Returns the token's length in bytes, one of `ends`, and its id; length 0 if there is none.
  std::pair<std::size_t, std::int32_t> find(std::string_view text, std::span<const std::size_t> ends,
                                            std::size_t begin) const {
    for (auto end = ends.rbegin(); end != ends.rend() && *end > begin; ++end) {
      if (*end - begin > longest_) continue;
      const auto found = ids_.find(text.substr(begin, *end - begin));
      if (found != ids_.end()) return {*end - begin, found->second};
    }
    return {0, 0};
  }

 private:
  TextMap<std::int32_t> ids_;
  std::size_t longest_ = 0;
};

class WordPieceTokenizer : public AddingTokenizer {
 public:
  explicit WordPieceTokenizer(WordPieceParts parts)
      : AddingTokenizer(
            std::move(parts.vocabulary), std::move(parts.added),
            [options = parts.options](std::string_view text) { return bert_normalised(text, options); }),
        options_(parts.options),
        unknown_(parts.unknown),
        prefix_(std::move(parts.prefix)),
        most_word_characters_(parts.most_word_characters) {
    for (const auto& [token, id] : vocabulary().ids()) {
      first_.add(token, id);
      if (token.starts_with(prefix_)) following_.add(std::string_view(token).substr(prefix_.size()), id);
    }
  }

  std::string decode(std::span<const std::int32_t> ids) const override {
    std::string text;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      std::string_view token = vocabulary().require_token(ids[i]);
      const bool goes_on = i > 0 && token.starts_with(prefix_);
      if (goes_on) token.remove_prefix(prefix_.size());
      if (i > 0 && !goes_on) text += ' ';
      text += token;
    }
    return text;
  }

  std::string to_json(std::span<const MissingToken> missing, Framing framing) const override {
    const std::string accents = options_.strip_accents ? fmt::format("{}", *options_.strip_accents) : "null";
    const std::string normalizer = fmt::format(
        R"({{"type":"BertNormalizer","clean_text":{},"handle_chinese_chars":{},"strip_accents":{},"lowercase":{}}})",
        options_.clean_text, options_.spaced_cjk, accents, options_.lower_case);
    const std::string model = fmt::format(
        R"("type":"WordPiece","unk_token":{},"continuing_subword_prefix":{},"max_input_chars_per_word":{},)",
        json_text(*vocabulary().token(unknown_)), json_text(prefix_), most_word_characters_);
    const std::string decoder =
        fmt::format(R"({{"type":"WordPiece","prefix":{},"cleanup":true}})", json_text(prefix_));
    return write_tokenizer_json({normalizer, R"({"type":"BertPreTokenizer"})", decoder, model, {}},
                                vocabulary(), added(), missing, framing);
  }

 protected:
  void append_ids(std::string_view text, std::vector<std::int32_t>& ids) const override {
    std::string word;
    std::vector<std::size_t> ends;  // ends of the word's characters, in bytes
    for_each_bert_word(text, options_, [&](std::u32string_view points) {
      word.clear();
      ends.clear();
      if (points.size() > most_word_characters_) {
        ids.push_back(unknown_);
        return;
      }
      for (const char32_t point : points) {
        append_utf8(static_cast<CodePoint>(point), word);
        ends.push_back(word.size());
      }
      append_word(word, ends, ids);
    });
  }

 private:
  // Appends the longest token that the word begins with, then the longest tokens that continue it; if they do
  // not cover the word, one unknown token for the whole word.
  void append_word(std::string_view word, std::span<const std::size_t> ends,
                   std::vector<std::int32_t>& ids) const {
    const std::size_t before = ids.size();
    for (std::size_t begin = 0; begin < word.size();) {
      const auto [length, id] = (begin == 0 ? first_ : following_).find(word, ends, begin);
      if (length == 0) {
        ids.resize(before);
        ids.push_back(unknown_);
        return;
      }
      ids.push_back(id);
      begin += length;
    }
  }

  WordPieceOptions options_;
  std::int32_t unknown_;
  std::string prefix_;
  std::size_t most_word_characters_;
  LongestToken first_;
  LongestToken following_;
};

std::string_view without_trailing_space(std::string_view line) {
  std::size_t end = 0;
  for (std::size_t at = 0; at < line.size();) {
    if (!is_space(next_code_point(line, at))) end = at;
  }
  return line.substr(0, end);
}

}  // namespace

std::unique_ptr<Tokenizer> make_word_piece_tokenizer(WordPieceParts parts) {
  return std::make_unique<WordPieceTokenizer>(std::move(parts));
}

std::unique_ptr<Tokenizer> read_word_piece_file(std::string_view vocab_text, const std::string& name,
                                                const WordPieceOptions& options, const AddedBeside& beside) {
  WordPieceParts parts;
  parts.options = options;
  for_each_line(without_empty_end(vocab_text), [&](std::string_view line, std::size_t number) {
    if (number > static_cast<std::size_t>(Vocabulary::most_ids)) {
      throw InvalidInput(
          fmt::format("{}: line {}: more tokens than the {} that a vocabulary may have; give a vocab.txt",
                      name, number, Vocabulary::most_ids));
    }
    parts.vocabulary.add_or_move(std::string(without_trailing_space(line)),
                                 static_cast<std::int32_t>(number - 1));
  });
  for (const SpecialToken token : {SpecialToken::unknown, SpecialToken::classification,
                                   SpecialToken::separator, SpecialToken::padding, SpecialToken::mask}) {
    const std::string text(texts_of(token).front());
    if (const auto id = parts.vocabulary.id(text)) parts.added.push_back({text, *id});
  }
  add_beside(beside, parts.vocabulary, parts.added);
  const auto unknown = parts.vocabulary.id("[UNK]");
  if (!unknown) {
    throw InvalidInput(
        fmt::format("{}: no line is [UNK], the token of unknown words; give BERT's vocab.txt", name));
  }
  parts.unknown = *unknown;
  return make_word_piece_tokenizer(std::move(parts));
}

std::unique_ptr<Tokenizer> word_piece_tokenizer(std::string_view vocab_text,
                                                const WordPieceOptions& options) {
  return read_word_piece_file(vocab_text, "vocab.txt", options);
}

}  // namespace stowage
