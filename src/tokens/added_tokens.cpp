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

AddingTokenizer::AddingTokenizer(Vocabulary vocabulary, std::vector<AddedToken> added)
    : vocabulary_(std::move(vocabulary)), added_(std::move(added)) {
  std::array<std::vector<AddedToken>, 2> parts;
  for (const AddedToken& token : added_) parts[token.late ? 1 : 0].push_back(token);
  for (std::size_t i = 0; i < parts.size(); ++i) rounds_[i] = AddedTokens(std::move(parts[i]));
}

std::vector<std::int32_t> AddingTokenizer::encode(std::string_view text, SpecialText special) const {
  std::vector<std::int32_t> ids;
  append_round(special == SpecialText::recognised ? 0 : rounds_.size(), text, ids);
  return ids;
}

void AddingTokenizer::append_round(std::size_t round, std::string_view text,
                                   std::vector<std::int32_t>& ids) const {
  if (round == rounds_.size()) return append_ids(text, ids);
  std::size_t at = 0;
  while (const auto match = rounds_[round].find(text, at)) {
    append_round(round + 1, text.substr(at, match->begin - at), ids);
    ids.push_back(match->token->id);
    at = match->begin + match->token->text.size();
  }
  append_round(round + 1, text.substr(at), ids);
}

std::optional<std::int32_t> AddingTokenizer::special(SpecialToken token) const {
  for (const std::string_view text : texts_of(token)) {
    if (const auto id = vocabulary_.id(text)) return id;
  }
  return {};
}

}  // namespace stowage
