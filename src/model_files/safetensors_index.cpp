#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "src/graph/json_field.h"
#include "stowage/error.h"
#include "stowage/safetensors.h"

namespace stowage {
namespace {

constexpr std::size_t most_index_entries = std::size_t{1} << 20;

// Whether the name is of a file in the index's own folder, and no path out of it.
bool is_plain_name(std::string_view name) {
  return !name.empty() && name.size() <= 255 && name.front() != '.' && name.ends_with(".safetensors") &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

}  // namespace

std::map<std::string, std::string> parse_safetensors_index(std::string_view text, std::string_view file) {
  const JsonSource source{std::string(file), "give the index.json that was saved with the files",
                          "the whole file"};
  const nlohmann::json json = parse_json(text, source);
  const JsonField root(json, source);
  root.members(most_index_entries);
  std::map<std::string, std::string> files;
  for (const auto& [name, field] : root.member("weight_map").members(most_index_entries)) {
    const std::string target = field.text();
    if (!is_plain_name(target))
      throw InvalidInput(fmt::format(
          "{}: weight_map: {} stands in {}, which is no name of a .safetensors file in the index's "
          "folder; {}",
          file, in_quotes(name), in_quotes(target), source.remedy));
    files.emplace(name, target);
  }
  if (files.empty()) root.member("weight_map").fail("an object with tensors");
  return files;
}

std::string safetensors_index(const std::map<std::string, std::string>& files, Bytes total_bytes) {
  nlohmann::ordered_json json;
  json["metadata"] = {{"total_size", total_bytes}};
  json["weight_map"] = files;
  return json.dump(2) + "\n";
}

std::string changed_safetensors_index(std::string_view text, const std::map<std::string, std::string>& files,
                                      Bytes total_bytes) {
  auto json = nlohmann::ordered_json::parse(text);
  if (!json["metadata"].is_object()) json["metadata"] = nlohmann::ordered_json::object();
  json["metadata"]["total_size"] = total_bytes;
  for (const auto& [tensor, file] : files) json["weight_map"][tensor] = file;
  return json.dump(2) + "\n";
}

}  // namespace stowage
