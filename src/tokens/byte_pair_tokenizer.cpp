#include "src/tokens/byte_pair_tokenizer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>

#include "src/base/printable.h"
#include "src/tokens/gpt2_pieces.h"
#include "src/tokens/tokenizer_json.h"
#include "stowage/error.h"

namespace stowage {
namespace {

class BytePairTokenizer : public AddingTokenizer {
 public:
  explicit BytePairTokenizer(BytePairParts parts)
      : AddingTokenizer(std::move(parts.vocabulary), std::move(parts.added)),
        name_(parts.name()),
        merges_(std::move(parts.merges)) {
    for (std::size_t byte = 0; byte < byte_ids_.size(); ++byte)
      byte_ids_[byte] = vocabulary().id(byte_letters()[byte]).value_or(no_token);
  }

  std::string decode(std::span<const std::int32_t> ids) const override {
    std::string text;
    for (const std::int32_t id : ids) {
      const std::string& token = vocabulary().require_token(id);
      const auto bytes = unspelled(token);
      text += bytes ? *bytes : token;  // an added token may be any text
    }
    return text;
  }

  std::string to_json(std::span<const MissingToken> missing, Framing framing) const override {
    std::vector<std::string> merges;
    for (const TokenPair pair : merges_.in_order())
      merges.push_back(fmt::format("[{},{}]", json_text(*vocabulary().token(pair.first)),
                                   json_text(*vocabulary().token(pair.second))));
    return write_tokenizer_json(byte_level_json(fmt::format(",\"merges\":[{}]", fmt::join(merges, ","))),
                                vocabulary(), added(), missing, framing);
  }

 protected:
  void append_ids(std::string_view text, std::vector<std::int32_t>& ids) const override {
    // The ids of a piece that came before, as a range of `ids`.
    struct Range {
      std::size_t begin = 0;
      std::size_t end = 0;
    };
    std::unordered_map<std::string_view, Range> seen;
    std::vector<std::int32_t> tokens;
    for_each_piece(text, [&](std::string_view piece) {
      const auto [known, is_new] = seen.try_emplace(piece);
      if (!is_new) {
        for (std::size_t i = known->second.begin; i < known->second.end; ++i) ids.push_back(ids[i]);
        return;
      }
      tokens.clear();
      for (const char byte : piece) tokens.push_back(require(static_cast<unsigned char>(byte)));
      merges_.apply(tokens);
      known->second = {ids.size(), ids.size() + tokens.size()};
      ids.insert(ids.end(), tokens.begin(), tokens.end());
    });
  }

 private:
  static constexpr std::int32_t no_token = -1;

  std::int32_t require(unsigned char byte) const {
    const std::int32_t id = byte_ids_[byte];
    if (id != no_token) return id;
    throw InvalidInput(
        fmt::format("{}: the text has the byte 0x{:02x}, for which there is no token; give a tokenizer that "
                    "was trained on "
                    "such text, or text without it",
                    name_, byte));
  }

  std::string name_;  // name of the file
  MergeTable merges_;
  std::array<std::int32_t, 256> byte_ids_{};
};

}  // namespace

void BytePairParts::add_token(std::string letters, std::int32_t id) {
  std::string text = letters;
  if (!vocabulary.add(std::move(letters), id)) {
    throw InvalidInput(
        fmt::format("{}: token '{}': its id {} is another token's too; give a vocabulary in which each "
                    "token has an id of its own",
                    name_, text, id));
  }
}

void BytePairParts::require_bytes() const {
  constexpr std::ptrdiff_t least = 32;
  const auto& letters = byte_letters();
  const auto is_there = [&](const std::string& letter) { return vocabulary.id(letter).has_value(); };
  const auto count = std::count_if(letters.begin(), letters.end(), is_there);
  if (count < least)
    throw InvalidInput(
        fmt::format("{}: {} of its tokens stand for a byte; give a byte-level vocabulary", name_, count));
}

std::int32_t BytePairParts::require(const std::string& letters, const std::string& name,
                                    const std::string& where) const {
  if (const auto id = vocabulary.id(letters)) return *id;
  throw InvalidInput(fmt::format("{}: {}: '{}' is no token of {}; give files that belong together", name,
                                 where, printable(letters), name_));
}

void BytePairParts::add_merge(std::string_view first, std::string_view second, const std::string& name,
                              const std::string& where) {
  std::string letters(first);
  const std::int32_t left = require(letters, name, where);
  letters += second;
  const std::int32_t made = require(letters, name, where);
  merges.add({left, require(std::string(second), name, where)}, made);
}

std::unique_ptr<Tokenizer> make_byte_pair_tokenizer(BytePairParts parts) {
  return std::make_unique<BytePairTokenizer>(std::move(parts));
}

}  // namespace stowage
