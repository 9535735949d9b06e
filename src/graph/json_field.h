// A value of an untrusted JSON text, and its path: every count, number and word is checked where it is read,
// and refused with InvalidInput that names it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stowage/graph.h"

namespace stowage {

inline constexpr std::array data_types{DataType::f32, DataType::f64, DataType::i32, DataType::bf16,
                                       DataType::i16, DataType::f16, DataType::u8};
inline constexpr std::array tensor_kinds{TensorKind::parameter,       TensorKind::gradient,
                                         TensorKind::optimizer_state, TensorKind::activation,
                                         TensorKind::input,           TensorKind::workspace};
inline constexpr std::array phases{Phase::forward, Phase::backward, Phase::update};

// Limits of a graph from outside.
inline constexpr std::size_t most_items = std::size_t{1} << 22;  // tensors, ops
inline constexpr std::size_t most_operands = std::size_t{1} << 16;
inline constexpr std::size_t most_dimensions = 16;

// Description of the text, for messages.
struct JsonSource {
  std::string what;                // "graph JSON"
  std::string remedy;              // "give the text that to_json wrote"
  std::string whole = "the text";  // name of a field without a path
};

// Parses the text. Throws InvalidInput that begins with `source.what` and ends with its remedy: for text that
// is no JSON, for an object with one name twice, and for a byte 0.
nlohmann::json parse_json(std::string_view text, const JsonSource& source);

// Returns the text for messages: in quotes, on one line, in ASCII, and cut.
std::string in_quotes(std::string_view text);

class JsonField {
 public:
  using Json = nlohmann::json;

  // Both must outlive the field. `path`: e.g. "ops[3].reads[0]"; empty: the whole text.
  JsonField(const Json& value, const JsonSource& source, std::string path = {})
      : value_(&value), source_(&source), path_(std::move(path)) {}

  // "'ops[3].reads[0]' is not an id; …"
  [[noreturn]] void fail(std::string_view expected) const;
  // "'ops[3].reads[0]' <why>; …"
  [[noreturn]] void refuse(std::string_view why) const;

  void require_members(std::initializer_list<std::string_view> names) const;
  bool has(const char* name) const { return value_->is_object() && value_->contains(name); }
  JsonField member(const std::string& name) const;
  std::optional<JsonField> optional_member(const char* name) const;
  std::vector<std::pair<std::string, JsonField>> members(std::size_t most) const;

  template <class Read>
  auto list(std::size_t most, Read&& read) const {
    require_list(most);
    std::vector<decltype(read(*this))> items;
    items.reserve(value_->size());
    for (std::size_t i = 0; i < value_->size(); ++i) items.push_back(read(item(i)));
    return items;
  }
  template <class Enum, std::size_t count>
  Enum one_of(const std::array<Enum, count>& values) const {
    const std::string word = text();
    for (const Enum value : values) {
      if (to_string(value) == word) return value;
    }
    fail("a known word");
  }

  bool is_null() const { return value_->is_null(); }
  bool boolean() const;
  bool is_text() const { return value_->is_string(); }
  bool is_list() const { return value_->is_array(); }
  std::string text() const;
  double number() const;  // finite
  std::int64_t integer() const;
  std::uint32_t id() const;
  std::uint32_t id_or_null() const;
  Attribute attribute() const;

 private:
  const Json* value_;
  const JsonSource* source_;
  std::string path_;

  void require_list(std::size_t most) const;
  JsonField item(std::size_t index) const;
  JsonField at(const Json& value, const std::string& name) const;
};

}  // namespace stowage
