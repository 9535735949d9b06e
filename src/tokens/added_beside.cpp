#include "src/tokens/added_beside.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "src/base/printable.h"
#include "src/tokens/json_tokens.h"
#include "src/tokens/mapped_file.h"
#include "stowage/error.h"

namespace stowage {
namespace {

namespace fs = std::filesystem;

constexpr const char* remedy = "give the file that was saved with the vocabulary, or a tokenizer.json";
constexpr auto most_tokens = static_cast<std::size_t>(Vocabulary::most_ids);

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

std::int32_t id_of(const std::string& digits, const JsonField& field) {
  std::int32_t id = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), id);
  if (error != std::errc() || end != digits.data() + digits.size() || id < 0 || id >= Vocabulary::most_ids)
    field.refuse(fmt::format("has {} in the place of an id", in_quotes(digits)));
  return id;
}

}  // namespace

AddedToken added_token(const JsonField& item, std::int32_t id) {
  const auto flag = [&](const char* name, bool otherwise) {
    return item.has(name) && !item.member(name).is_null() ? item.member(name).boolean() : otherwise;
  };
  for (const char* name : {"single_word", "lstrip", "rstrip"})
    if (flag(name, false)) item.member(name).fail("false, which is all that is read here");
  const JsonField content = item.member("content");
  if (content.text().empty()) content.fail("a text with characters in it");
  return {content.text(), id, flag("normalized", true)};
}

AddedBeside added_beside(const fs::path& folder) {
  AddedBeside beside;
  const fs::path config = folder / "tokenizer_config.json", older = folder / "added_tokens.json";
  if (is_there(config)) {
    beside.file = config.string();
    const MappedFile file(beside.file, remedy);
    const JsonSource source{beside.file, remedy};
    const nlohmann::json json = parse_json(file.text(), source);
    const JsonField root(json, source);
    if (root.has("add_prefix_space") && !root.member("add_prefix_space").is_null())
      beside.prefix_space = root.member("add_prefix_space").boolean();
    if (root.has("added_tokens_decoder")) {
      const JsonField decoder = root.member("added_tokens_decoder");
      for (const auto& [id, item] : decoder.members(most_tokens))
        beside.tokens.push_back(added_token(item, id_of(id, decoder)));
    }
  }
  if (beside.tokens.empty() && is_there(older)) {
    beside.file = older.string();
    const MappedFile file(beside.file, remedy);
    const JsonSource source{beside.file, remedy, "the whole file"};
    const nlohmann::json json = parse_json(file.text(), source);
    for (auto& [text, id] : tokens_in(JsonField(json, source))) {
      const auto special = special_texts();
      beside.tokens.push_back({text, id, std::find(special.begin(), special.end(), text) == special.end()});
    }
  }
  std::sort(beside.tokens.begin(), beside.tokens.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  return beside;
}

void add_beside(const AddedBeside& beside, Vocabulary& vocabulary, std::vector<AddedToken>& added) {
  for (const AddedToken& token : beside.tokens) {
    const auto known = vocabulary.id(token.text);
    const bool is_next = !known && token.id == vocabulary.size();
    if (known != token.id && !is_next)
      throw InvalidInput(fmt::format(
          "{}: it gives '{}' the id {}, and the vocabulary {}; {}", beside.file, printable(token.text),
          token.id,
          known ? fmt::format("has it as {}", *known) : fmt::format("goes on at {}", vocabulary.size()),
          remedy));
    if (is_next) vocabulary.add(token.text, token.id);
    std::erase_if(added, [&](const AddedToken& other) { return other.id == token.id; });
    added.push_back(token);
  }
}

}  // namespace stowage
