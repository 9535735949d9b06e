// Graph <-> JSON. The reader trusts nothing: every count, number and word is checked where it is
// read, with its path in the message, and check() judges the whole.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "stowage/error.h"
#include "stowage/graph.h"

namespace stowage {
namespace {

using Json = nlohmann::json;

constexpr std::string_view format_name = "stowage-graph";
constexpr std::int64_t format_version = 1;
constexpr std::size_t most_items = std::size_t{1} << 22;  // tensors, ops
constexpr std::size_t most_operands = std::size_t{1} << 16;
constexpr std::size_t most_dimensions = 16;
constexpr std::size_t most_attributes = 256;

constexpr std::array data_types{DataType::f32, DataType::f64, DataType::i32, DataType::bf16, DataType::i16};
constexpr std::array kinds{TensorKind::parameter,  TensorKind::gradient, TensorKind::optimizer_state,
                           TensorKind::activation, TensorKind::input,    TensorKind::workspace};
constexpr std::array phases{Phase::forward, Phase::backward, Phase::update};

// --- writing -------------------------------------------------------------------------------------

Json id_to_json(std::uint32_t id) { return id == no_id ? Json(nullptr) : Json(id); }

Json to_json_value(const Tensor& tensor) {
  return {{"name", tensor.name},
          {"type", to_string(tensor.type)},
          {"shape", tensor.shape},
          {"kind", to_string(tensor.kind)},
          {"mean", tensor.initializer.mean},
          {"standard_deviation", tensor.initializer.standard_deviation}};
}

Json to_json_value(const Op& op) {
  Json attributes = Json::object();
  for (const auto& [name, value] : op.attributes) {
    attributes[name] = std::visit([](const auto& alternative) { return Json(alternative); }, value);
  }
  Json aliases = Json::array();
  for (const Alias& alias : op.may_alias) aliases.push_back(Json::array({alias.write, alias.read}));
  return {{"name", op.name},
          {"kernel", op.kernel},
          {"attributes", attributes},
          {"reads", op.reads},
          {"writes", op.writes},
          {"may_alias", aliases},
          {"phase", to_string(op.phase)},
          {"unit", id_to_json(op.unit)},
          {"flops", op.cost.flops},
          {"bytes", op.cost.bytes}};
}

// --- reading -------------------------------------------------------------------------------------

// A value of the text and where it stands, e.g. "ops[3].reads[0]".
class Field {
 public:
  Field(const Json& value, std::string path) : value_(&value), path_(std::move(path)) {}

  [[noreturn]] void fail(std::string_view expected) const {
    throw InvalidInput(fmt::format("graph JSON: '{}' is not {}; give the text that to_json wrote",
                                   path_.empty() ? "the text" : path_, expected));
  }

  void require_members(std::initializer_list<std::string_view> names) const {
    if (!value_->is_object()) fail("an object");
    for (const auto& [name, member] : value_->items()) {
      if (std::find(names.begin(), names.end(), name) == names.end()) {
        Field(member, member_path(name)).fail("a known field");
      }
    }
  }
  bool has(const std::string& name) const { return value_->contains(name); }
  Field member(const std::string& name) const {
    auto found = value_->find(name);
    if (found == value_->end()) Field(*value_, member_path(name)).fail("there");
    return {*found, member_path(name)};
  }
  std::vector<std::pair<std::string, Field>> members(std::size_t most) const {
    if (!value_->is_object() || value_->size() > most)
      fail(fmt::format("an object of at most {} members", most));
    std::vector<std::pair<std::string, Field>> all;
    for (const auto& [name, member] : value_->items())
      all.emplace_back(name, Field(member, member_path(name)));
    return all;
  }
  template <class Read>
  auto list(std::size_t most, Read&& read) const {
    if (!value_->is_array() || value_->size() > most) fail(fmt::format("a list of at most {} items", most));
    std::vector<decltype(read(*this))> items;
    items.reserve(value_->size());
    for (std::size_t i = 0; i < value_->size(); ++i) {
      items.push_back(read(Field((*value_)[i], fmt::format("{}[{}]", path_, i))));
    }
    return items;
  }

  std::string text() const {
    if (!value_->is_string()) fail("a string");
    return value_->get<std::string>();
  }
  double number() const {
    if (!value_->is_number() || !std::isfinite(value_->get<double>())) fail("a finite number");
    return value_->get<double>();
  }
  std::int64_t integer() const {
    bool fits = value_->is_number_integer() &&
                (!value_->is_number_unsigned() ||
                 value_->get<std::uint64_t>() <= static_cast<std::uint64_t>(INT64_MAX));
    if (!fits) fail("an integer of 64 bits");
    return value_->get<std::int64_t>();
  }
  std::uint32_t id() const {
    std::int64_t value = integer();
    if (value < 0 || value >= static_cast<std::int64_t>(no_id)) fail("an id");
    return static_cast<std::uint32_t>(value);
  }
  std::uint32_t id_or_null() const { return value_->is_null() ? no_id : id(); }
  Attribute attribute() const {
    if (value_->is_string()) return text();
    if (value_->is_number_integer()) return integer();
    if (value_->is_number_float()) return number();
    fail("a number or a string");
  }
  template <class Enum, std::size_t count>
  Enum one_of(const std::array<Enum, count>& values) const {
    std::string word = text();
    for (Enum value : values) {
      if (to_string(value) == word) return value;
    }
    fail("a known word");
  }

 private:
  const Json* value_;
  std::string path_;

  std::string member_path(const std::string& name) const { return path_.empty() ? name : path_ + "." + name; }
};

Tensor read_tensor(const Field& field) {
  field.require_members({"name", "type", "shape", "kind", "mean", "standard_deviation"});
  Tensor tensor;
  tensor.name = field.member("name").text();
  tensor.type = field.member("type").one_of(data_types);
  tensor.shape =
      field.member("shape").list(most_dimensions, [](const Field& item) { return item.integer(); });
  tensor.kind = field.member("kind").one_of(kinds);
  tensor.initializer.mean = field.member("mean").number();
  tensor.initializer.standard_deviation = field.member("standard_deviation").number();
  return tensor;
}

Alias read_alias(const Field& field) {
  auto pair = field.list(2, [](const Field& item) { return item.id(); });
  if (pair.size() != 2) field.fail("a pair of operands");
  return {pair[0], pair[1]};
}

Op read_op(const Field& field) {
  field.require_members(
      {"name", "kernel", "attributes", "reads", "writes", "may_alias", "phase", "unit", "flops", "bytes"});
  auto id = [](const Field& item) { return item.id(); };
  Op op;
  op.name = field.member("name").text();
  op.kernel = field.member("kernel").text();
  for (const auto& [name, value] : field.member("attributes").members(most_attributes)) {
    op.attributes[name] = value.attribute();
  }
  op.reads = field.member("reads").list(most_operands, id);
  op.writes = field.member("writes").list(most_operands, id);
  op.may_alias = field.member("may_alias").list(most_operands, read_alias);
  op.phase = field.member("phase").one_of(phases);
  op.unit = field.member("unit").id_or_null();
  op.cost = {field.member("flops").number(), field.member("bytes").number()};
  return op;
}

Graph read_graph(const Field& field) {
  field.require_members({"format", "version", "tensors", "ops", "units", "micro_batches", "loss", "clip"});
  if (field.member("format").text() != format_name) field.member("format").fail("'stowage-graph'");
  if (field.member("version").integer() != format_version) field.member("version").fail("version 1");
  Graph graph;
  graph.tensors = field.member("tensors").list(most_items, read_tensor);
  graph.ops = field.member("ops").list(most_items, read_op);
  graph.unit_names = field.member("units").list(most_items, [](const Field& item) { return item.text(); });
  if (field.has("micro_batches")) graph.micro_batches = field.member("micro_batches").id();
  graph.loss = field.member("loss").id_or_null();
  graph.clip = field.member("clip").id_or_null();
  return graph;
}

}  // namespace

std::string to_json(const Graph& graph) {
  check(graph);
  Json tensors = Json::array();
  for (const Tensor& tensor : graph.tensors) tensors.push_back(to_json_value(tensor));
  Json ops = Json::array();
  for (const Op& op : graph.ops) ops.push_back(to_json_value(op));
  Json json = {{"format", format_name},         {"version", format_version}, {"tensors", std::move(tensors)},
               {"ops", std::move(ops)},         {"units", graph.unit_names}, {"loss", id_to_json(graph.loss)},
               {"clip", id_to_json(graph.clip)}};
  if (graph.micro_batches != 1) json["micro_batches"] = graph.micro_batches;
  try {
    return json.dump(1);
  } catch (const Json::exception& error) {
    throw InvalidInput(fmt::format("graph to JSON: {}; use UTF-8 in names", error.what()));
  }
}

Graph graph_from_json(std::string_view text) {
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::exception& error) {
    throw InvalidInput(fmt::format("graph JSON: {}; give the text that to_json wrote", error.what()));
  }
  Graph graph = read_graph(Field(json, ""));
  check(graph);
  return graph;
}

}  // namespace stowage
