#include <fmt/format.h>

#include <algorithm>
#include <queue>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "src/tokens/added_tokens.h"
#include "src/tokens/gpt2_pieces.h"
#include "src/tokens/merge_table.h"
#include "stowage/error.h"
#include "stowage/tokenizer.h"

namespace stowage {
namespace {

constexpr std::string_view end_of_text = "<|endoftext|>";
constexpr std::int32_t fewest_tokens = 257;  // the bytes and the end of text
constexpr std::uint64_t fewest_occurrences = 2;

struct CountedPiece {
  std::vector<std::int32_t> tokens;
  std::uint64_t count = 0;
};

// Returns the text's distinct pieces, as ids of bytes, in order of their first occurrence.
std::vector<CountedPiece> count_pieces(std::string_view text) {
  std::array<std::int32_t, 256> byte_ids;
  for (std::size_t id = 0; id < byte_ids.size(); ++id)
    byte_ids[bytes_by_letter()[id]] = static_cast<std::int32_t>(id);
  std::vector<CountedPiece> pieces;
  std::unordered_map<std::string_view, std::size_t> places;
  const auto count = [&](std::string_view piece) {
    const auto [place, is_new] = places.try_emplace(piece, pieces.size());
    if (is_new) {
      pieces.emplace_back();
      for (const char byte : piece)
        pieces.back().tokens.push_back(byte_ids[static_cast<unsigned char>(byte)]);
    }
    ++pieces[place->second].count;
  };
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(end_of_text, at), text.size());
    for_each_piece(text.substr(at, end - at), count);
    at = end + end_of_text.size();
  }
  return pieces;
}

// Counts of each pair of neighbours, updated merge by merge, and the most frequent pair.
class PairCounts {
 public:
  explicit PairCounts(std::vector<CountedPiece> pieces) : pieces_(std::move(pieces)) {
    for (std::size_t piece = 0; piece < pieces_.size(); ++piece) {
      for_each_pair(piece, [&](TokenPair pair) {
        pairs_[pair].count += pieces_[piece].count;
        note(pair, piece);
      });
    }
    push_touched();
  }

  // Takes the next pair to merge off the queue; nullopt if no pair occurs often enough.
  std::optional<TokenPair> next() {
    while (!queue_.empty()) {
      const Entry entry = queue_.top();
      queue_.pop();
      const std::uint64_t count = pairs_[entry.pair].count;
      if (count == entry.count) return entry.pair;
      if (count >= fewest_occurrences) queue_.push({count, entry.pair});  // the pair has become rarer since
    }
    return {};
  }

  void merge(TokenPair pair, std::int32_t made) {
    const std::vector<std::size_t> places = std::exchange(pairs_[pair].pieces, {});
    for (const std::size_t place : places) {
      for_each_pair(place, [&](TokenPair old) { pairs_[old].count -= pieces_[place].count; });
      merge_in(pieces_[place].tokens, pair, made);
      for_each_pair(place, [&](TokenPair now) {
        pairs_[now].count += pieces_[place].count;
        // Only pairs with the new token can occur more often than before.
        if (now.first == made || now.second == made) note(now, place);
      });
    }
    push_touched();
  }

 private:
  struct Pair {
    std::uint64_t count = 0;
    std::vector<std::size_t> pieces;  // pieces that may hold the pair
  };
  // An entry may be out of date, but the pair's latest entry is never below its count.
  struct Entry {
    std::uint64_t count = 0;
    TokenPair pair;
    bool operator<(const Entry& other) const {
      return count != other.count ? count < other.count : pair > other.pair;
    }
  };

  template <class Take>
  void for_each_pair(std::size_t piece, Take&& take) {
    const std::vector<std::int32_t>& tokens = pieces_[piece].tokens;
    for (std::size_t i = 0; i + 1 < tokens.size(); ++i) take(TokenPair{tokens[i], tokens[i + 1]});
  }
  void note(TokenPair pair, std::size_t piece) {
    std::vector<std::size_t>& pieces = pairs_[pair].pieces;
    if (pieces.empty() || pieces.back() != piece) pieces.push_back(piece);
    touched_.push_back(pair);
  }
  void push_touched() {
    std::sort(touched_.begin(), touched_.end());
    touched_.erase(std::unique(touched_.begin(), touched_.end()), touched_.end());
    for (const TokenPair pair : touched_) {
      const std::uint64_t count = pairs_[pair].count;
      if (count >= fewest_occurrences) queue_.push({count, pair});
    }
    touched_.clear();
  }
  static void merge_in(std::vector<std::int32_t>& tokens, TokenPair pair, std::int32_t made) {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const bool matches = i + 1 < tokens.size() && tokens[i] == pair.first && tokens[i + 1] == pair.second;
      tokens[kept++] = matches ? made : tokens[i];
      if (matches) ++i;
    }
    tokens.resize(kept);
  }

  std::vector<CountedPiece> pieces_;
  std::unordered_map<TokenPair, Pair, TokenPairHash> pairs_;
  std::priority_queue<Entry> queue_;
  std::vector<TokenPair> touched_;
};

void add_bytes(BytePairVocabulary& vocabulary, TextMap<std::int32_t>& ids) {
  for (const std::uint8_t byte : bytes_by_letter()) {
    const std::string text(1, static_cast<char>(byte));
    ids.emplace(text, static_cast<std::int32_t>(vocabulary.tokens.size()));
    vocabulary.tokens.push_back(text);
  }
}

}  // namespace

BytePairVocabulary train_byte_pairs(std::string_view text, std::int32_t vocabulary_size) {
  if (vocabulary_size < fewest_tokens || vocabulary_size > Vocabulary::most_ids) {
    throw InvalidInput(fmt::format("a vocabulary of {} tokens cannot be learned; give a size from {} to {}",
                                   vocabulary_size, fewest_tokens, Vocabulary::most_ids));
  }
  BytePairVocabulary vocabulary;
  TextMap<std::int32_t> ids;
  add_bytes(vocabulary, ids);
  PairCounts pairs(count_pieces(text));
  while (std::ssize(vocabulary.tokens) + 1 < vocabulary_size) {
    const auto pair = pairs.next();
    if (!pair) break;
    std::string made = vocabulary.tokens[static_cast<std::size_t>(pair->first)] +
                       vocabulary.tokens[static_cast<std::size_t>(pair->second)];
    // Two merges may make the same token.
    const auto [place, is_new] = ids.try_emplace(made, static_cast<std::int32_t>(vocabulary.tokens.size()));
    if (is_new) vocabulary.tokens.push_back(std::move(made));
    vocabulary.merges.emplace_back(pair->first, pair->second);
    pairs.merge(*pair, place->second);
  }
  vocabulary.tokens.emplace_back(end_of_text);
  return vocabulary;
}

}  // namespace stowage
