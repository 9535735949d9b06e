#include "src/graph/json_field.h"

#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <set>

#include "src/base/printable.h"
#include "stowage/error.h"

namespace stowage {
namespace {

// Watches a parse and refuses a second member of the same name: a plain parse would take the last one.
class NamesInObjects {
 public:
  explicit NamesInObjects(const JsonSource& source) : source_(source) {}

  bool operator()(int, nlohmann::json::parse_event_t event, const nlohmann::json& parsed) {
    using Event = nlohmann::json::parse_event_t;
    if (event == Event::object_start) open_.emplace_back();
    if (event == Event::object_end) open_.pop_back();
    if (event == Event::key && !open_.back().insert(parsed.get<std::string>()).second)
      throw InvalidInput(fmt::format("{}: {} stands twice in one object; {}", source_.what,
                                     in_quotes(parsed.get<std::string>()), source_.remedy));
    return true;
  }

 private:
  const JsonSource& source_;
  std::vector<std::set<std::string>> open_;  // names met so far in each open object
};

// Returns the message without the library's prefix, "[json.exception.parse_error.101] ".
std::string reason_of(const nlohmann::json::exception& error) {
  const std::string_view text = error.what();
  const std::size_t end = text.find("] ");
  return printable(end == std::string_view::npos ? text : text.substr(end + 2));
}

}  // namespace

nlohmann::json parse_json(std::string_view text, const JsonSource& source) {
  if (const std::size_t at = text.find('\0'); at != std::string_view::npos)
    throw InvalidInput(
        fmt::format("{}: byte {} is 0, which no text has; {}", source.what, at + 1, source.remedy));
  NamesInObjects names(source);
  try {
    return nlohmann::json::parse(text, std::ref(names));
  } catch (const nlohmann::json::exception& error) {
    throw InvalidInput(fmt::format("{}: '{}' does not parse ({}); {}", source.what, source.whole,
                                   reason_of(error), source.remedy));
  }
}

std::string in_quotes(std::string_view text) {
  const bool cut = text.size() > longest_shown_name;
  const nlohmann::json value = std::string(text.substr(0, longest_shown_name)) + (cut ? "…" : "");
  return value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

void JsonField::refuse(std::string_view why) const {
  throw InvalidInput(fmt::format("{}: '{}' {}; {}", source_->what,
                                 path_.empty() ? source_->whole : printable(path_), why, source_->remedy));
}

void JsonField::fail(std::string_view expected) const { refuse(fmt::format("is not {}", expected)); }

JsonField JsonField::at(const Json& value, const std::string& name) const {
  return {value, *source_, path_.empty() ? name : path_ + "." + name};
}

JsonField JsonField::item(std::size_t index) const {
  return {(*value_)[index], *source_, fmt::format("{}[{}]", path_, index)};
}

void JsonField::require_members(std::initializer_list<std::string_view> names) const {
  if (!value_->is_object()) fail("an object");
  for (const auto& [name, value] : value_->items()) {
    if (std::find(names.begin(), names.end(), name) == names.end()) at(value, name).fail("a known field");
  }
}

JsonField JsonField::member(const std::string& name) const {
  const auto found = value_->find(name);
  if (found == value_->end()) at(*value_, name).fail("there");
  return at(*found, name);
}

std::optional<JsonField> JsonField::optional_member(const char* name) const {
  if (!has(name)) return {};
  return member(name);
}

std::vector<std::pair<std::string, JsonField>> JsonField::members(std::size_t most) const {
  if (!value_->is_object() || value_->size() > most)
    fail(fmt::format("an object of at most {} members", most));
  std::vector<std::pair<std::string, JsonField>> all;
  for (const auto& [name, value] : value_->items()) all.emplace_back(name, at(value, name));
  return all;
}

void JsonField::require_list(std::size_t most) const {
  if (!value_->is_array() || value_->size() > most) fail(fmt::format("a list of at most {} items", most));
}

bool JsonField::boolean() const {
  if (!value_->is_boolean()) fail("true or false");
  return value_->get<bool>();
}

std::string JsonField::text() const {
  if (!value_->is_string()) fail("a string");
  return value_->get<std::string>();
}

double JsonField::number() const {
  if (!value_->is_number() || !std::isfinite(value_->get<double>())) fail("a finite number");
  return value_->get<double>();
}

std::int64_t JsonField::integer() const {
  const bool fits =
      value_->is_number_integer() && (!value_->is_number_unsigned() ||
                                      value_->get<std::uint64_t>() <= static_cast<std::uint64_t>(INT64_MAX));
  if (!fits) fail("an integer of 64 bits");
  return value_->get<std::int64_t>();
}

std::uint32_t JsonField::id() const {
  const std::int64_t value = integer();
  if (value < 0 || value >= static_cast<std::int64_t>(no_id)) fail("an id");
  return static_cast<std::uint32_t>(value);
}

std::uint32_t JsonField::id_or_null() const { return value_->is_null() ? no_id : id(); }

Attribute JsonField::attribute() const {
  if (value_->is_string()) return text();
  if (value_->is_number_integer()) return integer();
  if (value_->is_number_float()) return number();
  fail("a number or a string");
}

}  // namespace stowage
