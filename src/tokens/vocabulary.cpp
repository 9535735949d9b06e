#include "src/tokens/vocabulary.h"

#include <fmt/format.h>

#include <algorithm>

#include "stowage/error.h"

namespace stowage {

bool Vocabulary::add(std::string token, std::int32_t id) {
  if (tokens_.contains(id)) return false;
  const auto [place, added] = ids_.try_emplace(std::move(token), id);
  if (!added) return false;
  tokens_.emplace(id, &place->first);
  size_ = std::max(size_, id + 1);
  return true;
}

void Vocabulary::add_or_move(std::string token, std::int32_t id) {
  const auto place = ids_.try_emplace(std::move(token), id).first;
  place->second = id;
  tokens_.insert_or_assign(id, &place->first);
  size_ = std::max(size_, id + 1);
}

std::optional<std::int32_t> Vocabulary::id(std::string_view token) const {
  const auto found = ids_.find(token);
  if (found == ids_.end()) return {};
  return found->second;
}

const std::string* Vocabulary::token(std::int32_t id) const {
  const auto found = tokens_.find(id);
  return found == tokens_.end() ? nullptr : found->second;
}

const std::string& Vocabulary::require_token(std::int32_t id) const {
  const std::string* found = token(id);
  if (found == nullptr) {
    throw InvalidInput(
        fmt::format("no token has the id {}; give ids of this vocabulary, which are below {}", id, size_));
  }
  return *found;
}

}  // namespace stowage
