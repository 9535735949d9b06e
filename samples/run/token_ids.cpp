#include "samples/run/token_ids.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>

#include "src/graph/json_field.h"
#include "src/model_files/files.h"
#include "stowage/bytes.h"
#include "stowage/error.h"

namespace stowage::samples {
namespace {

namespace fs = std::filesystem;

constexpr Bytes most_id_bytes = most_ids * 16;  // digits and white space of each
constexpr Bytes most_config_text = 16_MiB;

struct CloseFile {
  void operator()(std::FILE* file) const {
    if (file != stdin) std::fclose(file);
  }
};

std::string id_range(std::int64_t vocabulary) { return fmt::format("give ids from 0 to {}", vocabulary - 1); }

std::vector<std::int32_t> end_tokens_in(const std::string& file, std::int64_t vocabulary) {
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return {};
  const std::string remedy = "give the file that belongs to the model, or --stop-ids";
  const std::string text = read_small_file(file, most_config_text, remedy);
  const JsonSource source{file, remedy, "the text"};
  const nlohmann::json json = parse_json(text, source);
  const std::optional<JsonField> field = JsonField(json, source).optional_member("eos_token_id");
  if (!field || field->is_null()) return {};
  const auto id = [&](const JsonField& value) {
    const std::int64_t number = value.integer();
    if (number < 0 || number >= vocabulary)
      value.refuse(
          fmt::format("is {}, which is no token of the model: its ids are below {}", number, vocabulary));
    return static_cast<std::int32_t>(number);
  };
  if (field->is_list()) return field->list(most_stop_ids, id);
  return {id(*field)};
}

}  // namespace

std::vector<std::int32_t> parse_ids(std::string_view text, std::string_view separators, std::size_t most,
                                    std::int64_t vocabulary, const std::string& place) {
  std::vector<std::int32_t> ids;
  for (std::size_t at = text.find_first_not_of(separators); at != std::string_view::npos;
       at = text.find_first_not_of(separators, at)) {
    const std::string_view word = text.substr(at, text.find_first_of(separators, at) - at);
    at += word.size();
    if (ids.size() == most)
      throw InvalidInput(fmt::format("{}: there are more than {} ids; give fewer", place, most));
    std::int32_t id = -1;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || end != word.data() + word.size() || id < 0 || id >= vocabulary)
      throw InvalidInput(fmt::format("{}: number {} is {}; {}", place, ids.size() + 1, in_quotes(word),
                                     id_range(vocabulary)));
    ids.push_back(id);
  }
  if (ids.empty()) throw InvalidInput(fmt::format("{}: there is no id; {}", place, id_range(vocabulary)));
  return ids;
}

std::vector<std::int32_t> read_ids(const std::string& path, std::int64_t vocabulary) {
  const bool standard = path == "-";
  const std::string place = standard ? "--generate-ids: standard input" : "--generate-ids " + path;
  const std::unique_ptr<std::FILE, CloseFile> file(standard ? stdin : std::fopen(path.c_str(), "rb"));
  if (!file) throw InvalidInput(place + ": it cannot be read; name a file of ids, or - for standard input");
  std::string text;
  std::array<char, 65536> piece;
  while (const std::size_t count = std::fread(piece.data(), 1, piece.size(), file.get())) {
    text.append(piece.data(), count);
    if (text.size() > most_id_bytes)
      throw InvalidInput(
          fmt::format("{}: there are more than {} bytes; give fewer ids", place, most_id_bytes));
  }
  if (std::ferror(file.get()) != 0)
    throw InvalidInput(place + ": it cannot be read; name a file of ids, or - for standard input");
  return parse_ids(text, " \t\r\n\v\f", most_ids, vocabulary, place);
}

std::vector<std::int32_t> end_tokens(const std::string& init, std::int64_t vocabulary) {
  std::error_code error;
  const fs::path folder = fs::is_directory(init, error) ? fs::path(init) : fs::path(init).parent_path();
  for (const char* name : {"generation_config.json", "config.json"}) {
    std::vector<std::int32_t> found = end_tokens_in((folder / name).string(), vocabulary);
    if (!found.empty()) return found;
  }
  return {};
}

}  // namespace stowage::samples
