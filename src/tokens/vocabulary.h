// Tokens and their ids, both ways.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace stowage {

struct TextHash {
  using is_transparent = void;  // NOLINT(readability-identifier-naming): the library's name
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
template <class Value>
using TextMap = std::unordered_map<std::string, Value, TextHash, std::equal_to<>>;

class Vocabulary {
 public:
  // Limit of ids from outside: no vocabulary has more tokens. Memory grows with the tokens that exist, not
  // with their ids.
  static constexpr std::int32_t most_ids = 1 << 24;

  Vocabulary() = default;
  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;

  // Adds the token, unless the token or the id is there already; returns whether it was added.
  bool add(std::string token, std::int32_t id);
  // Adds a token that may be there already, as in a list with one token twice: then the text means the later
  // id, and both ids mean the text.
  void add_or_move(std::string token, std::int32_t id);

  std::optional<std::int32_t> id(std::string_view token) const;
  // Returns null if no token has this id.
  const std::string* token(std::int32_t id) const;
  // Throws InvalidInput if no token has this id.
  const std::string& require_token(std::int32_t id) const;

  std::int32_t size() const { return size_; }  // a number above every id
  const TextMap<std::int32_t>& ids() const { return ids_; }

 private:
  TextMap<std::int32_t> ids_;
  std::unordered_map<std::int32_t, const std::string*> tokens_;  // keys of ids_, which stay where they are
  std::int32_t size_ = 0;
};

}  // namespace stowage
