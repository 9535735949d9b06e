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
  // Of ids from outside. What has more tokens is no vocabulary, and memory goes with the tokens that are
  // there.
  static constexpr std::int32_t most_ids = 1 << 24;

  Vocabulary() = default;
  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;

  // Whether it could be added: neither the token nor the id is there yet.
  bool add(std::string token, std::int32_t id);
  // As where a list has one token twice: the text means the later id, and both ids mean the text.
  void add_or_move(std::string token, std::int32_t id);

  std::optional<std::int32_t> id(std::string_view token) const;
  // Null where no token has this id.
  const std::string* token(std::int32_t id) const;
  // Throws InvalidInput where no token has this id.
  const std::string& require_token(std::int32_t id) const;

  std::int32_t size() const { return size_; }  // above every id
  const TextMap<std::int32_t>& ids() const { return ids_; }

 private:
  TextMap<std::int32_t> ids_;
  std::unordered_map<std::int32_t, const std::string*> tokens_;  // keys of ids_, which stay where they are
  std::int32_t size_ = 0;
};

}  // namespace stowage
