#include "src/tokens/added_tokens.h"

#include <algorithm>

namespace stowage {

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) {
  for (AddedToken& token : tokens) {
    const auto first = static_cast<unsigned char>(token.text.front());
    by_first_byte_[first].push_back(std::move(token));
  }
  for (std::vector<AddedToken>& group : by_first_byte_) {
    std::stable_sort(group.begin(), group.end(),
                     [](const AddedToken& a, const AddedToken& b) { return a.text.size() > b.text.size(); });
  }
}

const AddedToken* AddedTokens::longest_at(std::string_view rest) const {
  const std::vector<AddedToken>& group = by_first_byte_[static_cast<unsigned char>(rest.front())];
  const auto found = std::find_if(group.begin(), group.end(),
                                  [&](const AddedToken& token) { return rest.starts_with(token.text); });
  return found == group.end() ? nullptr : &*found;
}

std::optional<AddedTokens::Match> AddedTokens::find(std::string_view text, std::size_t from) const {
  for (std::size_t at = from; at < text.size(); ++at) {
    if (const AddedToken* token = longest_at(text.substr(at)); token != nullptr) return Match{at, token};
  }
  return {};
}

bool AddedTokens::empty() const {
  return std::all_of(by_first_byte_.begin(), by_first_byte_.end(),
                     [](const auto& group) { return group.empty(); });
}

std::vector<std::string_view> texts_of(SpecialToken token) {
  switch (token) {
    case SpecialToken::end_of_text:
      return {"<|endoftext|>", "</s>"};
    case SpecialToken::classification:
      return {"[CLS]", "<s>"};
    case SpecialToken::separator:
      return {"[SEP]", "</s>"};
    case SpecialToken::padding:
      return {"[PAD]", "<pad>"};
    case SpecialToken::mask:
      return {"[MASK]", "<mask>"};
    case SpecialToken::unknown:
      return {"[UNK]", "<unk>"};
  }
  return {};
}

std::vector<std::string_view> special_texts() {
  return {"<|endoftext|>", "</s>",   "[CLS]",  "<s>",   "[SEP]", "[PAD]",
          "<pad>",         "[MASK]", "<mask>", "[UNK]", "<unk>"};
}

AddingTokenizer::AddingTokenizer(Vocabulary vocabulary, std::vector<AddedToken> added, Normalise normalise)
    : vocabulary_(std::move(vocabulary)), added_(std::move(added)), normalise_(std::move(normalise)) {
  std::vector<AddedToken> early, late;
  for (const AddedToken& token : added_) {
    AddedToken sought = token;
    if (token.late && normalise_) sought.text = normalise_(token.text);
    if (!sought.text.empty()) (token.late ? late : early).push_back(std::move(sought));
  }
  early_ = AddedTokens(std::move(early));
  late_ = AddedTokens(std::move(late));
}

std::vector<std::int32_t> AddingTokenizer::encode(std::string_view text, SpecialText special) const {
  std::vector<std::int32_t> ids;
  if (special == SpecialText::recognised)
    append_early(text, ids);
  else
    append_ids(text, ids);
  return ids;
}

void AddingTokenizer::append_early(std::string_view text, std::vector<std::int32_t>& ids) const {
  early_.split(text, ids, [&](std::string_view between) { append_late(between, ids); });
}

void AddingTokenizer::append_late(std::string_view text, std::vector<std::int32_t>& ids) const {
  if (late_.empty()) return append_ids(text, ids);
  const std::string changed = normalise_ ? normalise_(text) : std::string();
  late_.split(normalise_ ? changed : text, ids, [&](std::string_view between) { append_ids(between, ids); });
}

std::optional<std::int32_t> AddingTokenizer::special(SpecialToken token) const {
  for (const std::string_view text : texts_of(token)) {
    if (const auto id = vocabulary_.id(text)) return id;
  }
  return {};
}

}  // namespace stowage
