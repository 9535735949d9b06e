#include "src/tokens/added_beside.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "src/base/printable.h"
#include "src/tokens/mapped_file.h"
#include "src/tokens/tokenizer_json.h"
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

void read_named(const JsonField& root, const std::string& file, std::vector<NamedToken>& named) {
  const auto add = [&](const JsonField& field, const char* part) {
    if (field.is_null()) return;
    const std::string text = field.is_text() ? field.text() : added_token(field, 0).text;
    if (!text.empty()) named.push_back({text, file, part});
  };
  for (const char* part :
       {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"})
    if (root.has(part)) add(root.member(part), part);
  for (const char* part : {"additional_special_tokens", "extra_special_tokens"})
    if (root.has(part) && root.member(part).is_list())
      root.member(part).list(most_tokens, [&](const JsonField& item) {
        add(item, part);
        return 0;
      });
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

std::optional<bool> AddedBeside::setting(const char* name) const {
  const auto found = set.find(name);
  return found == set.end() ? std::nullopt : std::optional(found->second);
}

void AddedBeside::refuse(const char* name, bool value, const std::string& of_file) const {
  throw InvalidInput(
      fmt::format("{}: '{}' is {} there, and {} has it otherwise: give files that were saved together",
                  config, name, value, of_file));
}

AddedBeside added_beside(const fs::path& folder) {
  AddedBeside beside;
  const fs::path config = folder / "tokenizer_config.json", older = folder / "added_tokens.json",
                 map = folder / "special_tokens_map.json";
  if (is_there(config)) {
    beside.file = beside.config = config.string();
    const MappedFile file(beside.file, remedy);
    const JsonSource source{beside.file, remedy};
    const nlohmann::json json = parse_json(file.text(), source);
    const JsonField root(json, source);
    for (const char* name : {"add_prefix_space", "do_lower_case", "tokenize_chinese_chars", "strip_accents"})
      if (root.has(name) && !root.member(name).is_null())
        beside.set.emplace(name, root.member(name).boolean());
    if (root.has("tokenizer_class") && root.member("tokenizer_class").is_text()) {
      const std::string name = root.member("tokenizer_class").text();
      beside.any_class = name == "PreTrainedTokenizerFast" || name == "TokenizersBackend";
    }
    read_named(root, beside.file, beside.named);
    if (root.has("added_tokens_decoder")) {
      const JsonField decoder = root.member("added_tokens_decoder");
      for (const auto& [id, item] : decoder.members(most_tokens))
        beside.tokens.push_back(added_token(item, id_of(id, decoder)));
    }
  }
  if (is_there(map)) {
    const MappedFile file(map.string(), remedy);
    const JsonSource source{map.string(), remedy, "the whole file"};
    const nlohmann::json json = parse_json(file.text(), source);
    read_named(JsonField(json, source), map.string(), beside.named);
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
  for (const NamedToken& token : beside.named) {
    if (std::any_of(added.begin(), added.end(),
                    [&](const AddedToken& each) { return each.text == token.text; }))
      continue;
    const auto id = vocabulary.id(token.text);
    if (!id)
      throw InvalidInput(fmt::format("{}: '{}' is '{}', which has no id; {}", token.file, token.part,
                                     printable(token.text), remedy));
    added.push_back({token.text, *id});
  }
}

}  // namespace stowage
