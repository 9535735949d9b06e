#include "src/tokens/json_tokens.h"

#include <fmt/format.h>

#include "src/tokens/vocabulary.h"

namespace stowage {

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
