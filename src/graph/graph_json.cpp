// Graph <-> JSON. The reader trusts nothing: every count, number and word is checked where it is
// read, with its path in the message, and check() judges the whole.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "src/graph/json_field.h"
#include "stowage/error.h"
#include "stowage/graph.h"

namespace stowage {
namespace {

using Json = nlohmann::json;

constexpr std::string_view format_name = "stowage-graph";
// Version 2 knows measured times ("seconds" of an op), version 3 slices too ("whole" and "first_row" of a
// tensor), version 4 gradient groups and ranks too ("first_element" of a tensor, "peer_bytes" of an op),
// version 5 frozen parameters ("trained" of a tensor), "replayable" and "computes_in" of an op, "samples" and
// "tokens", version 6 ranges ("range_begins"). A graph is written in the lowest version that has all its
// features.
constexpr std::int64_t format_version = 1;
constexpr std::int64_t timed_version = 2;
constexpr std::int64_t sliced_version = 3;
constexpr std::int64_t grouped_version = 4;
constexpr std::int64_t frozen_version = 5;
constexpr std::int64_t ranged_version = 6;
constexpr std::size_t most_attributes = 256;

// writing -------------------------------------------------------------------------------------

Json id_to_json(std::uint32_t id) { return id == no_id ? Json(nullptr) : Json(id); }

Json to_json_value(const Tensor& tensor) {
  Json json = {{"name", tensor.name},
               {"type", to_string(tensor.type)},
               {"shape", tensor.shape},
               {"kind", to_string(tensor.kind)},
               {"mean", tensor.initializer.mean},
               {"standard_deviation", tensor.initializer.standard_deviation}};
  if (tensor.kind == TensorKind::slice) {
    json["whole"] = tensor.whole;
    json["first_row"] = tensor.first_row;
  }
  if (tensor.initializer.first_element != 0) json["first_element"] = tensor.initializer.first_element;
  if (!tensor.trained) json["trained"] = false;
  return json;
}

Json to_json_value(const Op& op) {
  Json attributes = Json::object();
  for (const auto& [name, value] : op.attributes) {
    attributes[name] = std::visit([](const auto& alternative) { return Json(alternative); }, value);
  }
  Json aliases = Json::array();
  for (const Alias& alias : op.may_alias) aliases.push_back(Json::array({alias.write, alias.read}));
  Json json = {{"name", op.name},
               {"kernel", op.kernel},
               {"attributes", attributes},
               {"reads", op.reads},
               {"writes", op.writes},
               {"may_alias", aliases},
               {"phase", to_string(op.phase)},
               {"unit", id_to_json(op.unit)},
               {"flops", op.cost.flops},
               {"bytes", op.cost.bytes}};
  if (op.cost.seconds) json["seconds"] = *op.cost.seconds;
  if (op.cost.peer_bytes != 0) json["peer_bytes"] = op.cost.peer_bytes;
  if (!op.replayable) json["replayable"] = false;
  if (op.cost.type) json["computes_in"] = to_string(*op.cost.type);
  return json;
}

bool has_measured_times(const Graph& graph) {
  return std::any_of(graph.ops.begin(), graph.ops.end(),
                     [](const Op& op) { return op.cost.seconds.has_value(); });
}

std::int64_t version_of(const Graph& graph) {
  const bool has_slices = std::any_of(graph.tensors.begin(), graph.tensors.end(),
                                      [](const Tensor& tensor) { return tensor.kind == TensorKind::slice; });
  const bool of_ranks =
      graph.share.ranks != 1 ||
      std::any_of(graph.tensors.begin(), graph.tensors.end(),
                  [](const Tensor& tensor) { return tensor.initializer.first_element != 0; }) ||
      std::any_of(graph.ops.begin(), graph.ops.end(), [](const Op& op) { return op.cost.peer_bytes != 0; });
  const bool of_others = graph.samples != 0 || graph.tokens != 0 ||
                         std::any_of(graph.tensors.begin(), graph.tensors.end(),
                                     [](const Tensor& tensor) { return !tensor.trained; }) ||
                         std::any_of(graph.ops.begin(), graph.ops.end(),
                                     [](const Op& op) { return !op.replayable || op.cost.type.has_value(); });
  if (!graph.range_begins.empty()) return ranged_version;
  if (of_others) return frozen_version;
  if (graph.gradient_groups != 1 || of_ranks) return grouped_version;
  if (has_slices) return sliced_version;
  return has_measured_times(graph) ? timed_version : format_version;
}

// reading -------------------------------------------------------------------------------------

Tensor read_tensor(const JsonField& field, std::int64_t version) {
  const bool may_be_slice = version >= sliced_version;
  field.require_members({"name", "type", "shape", "kind", "mean", "standard_deviation",
                         may_be_slice ? "whole" : "kind", may_be_slice ? "first_row" : "kind",
                         version >= grouped_version ? "first_element" : "kind",
                         version >= frozen_version ? "trained" : "kind"});
  Tensor tensor;
  tensor.name = field.member("name").text();
  tensor.type = field.member("type").one_of(data_types);
  tensor.shape =
      field.member("shape").list(most_dimensions, [](const JsonField& item) { return item.integer(); });
  const JsonField kind = field.member("kind");
  const bool is_slice = may_be_slice && kind.text() == to_string(TensorKind::slice);
  tensor.kind = is_slice ? TensorKind::slice : kind.one_of(tensor_kinds);
  tensor.initializer.mean = field.member("mean").number();
  tensor.initializer.standard_deviation = field.member("standard_deviation").number();
  if (const auto first = field.optional_member("first_element"))
    tensor.initializer.first_element = first->integer();
  if (const auto trained = field.optional_member("trained")) tensor.trained = trained->boolean();
  if (const auto whole = field.optional_member("whole")) tensor.whole = whole->id();
  if (const auto row = field.optional_member("first_row")) tensor.first_row = row->integer();
  return tensor;
}

Alias read_alias(const JsonField& field) {
  auto pair = field.list(2, [](const JsonField& item) { return item.id(); });
  if (pair.size() != 2) field.fail("a pair of operands");
  return {pair[0], pair[1]};
}

Op read_op(const JsonField& field, std::int64_t version) {
  field.require_members({"name", "kernel", "attributes", "reads", "writes", "may_alias", "phase", "unit",
                         "flops", "bytes", version == format_version ? "bytes" : "seconds",
                         version >= grouped_version ? "peer_bytes" : "bytes",
                         version >= frozen_version ? "replayable" : "bytes",
                         version >= frozen_version ? "computes_in" : "bytes"});
  auto id = [](const JsonField& item) { return item.id(); };
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
  op.cost = {field.member("flops").number(), field.member("bytes").number(), {}};
  if (const auto seconds = field.optional_member("seconds")) op.cost.seconds = seconds->number();
  if (const auto bytes = field.optional_member("peer_bytes")) op.cost.peer_bytes = bytes->number();
  if (const auto replayable = field.optional_member("replayable")) op.replayable = replayable->boolean();
  if (const auto type = field.optional_member("computes_in")) op.cost.type = type->one_of(data_types);
  return op;
}

Graph read_graph(const JsonField& field) {
  const std::int64_t given = field.has("version") ? field.member("version").integer() : format_version;
  const bool grouped = given >= grouped_version, counted = given >= frozen_version;
  field.require_members({"format", "version", "tensors", "ops", "units", "micro_batches", "loss", "clip",
                         grouped ? "gradient_groups" : "micro_batches", grouped ? "rank" : "micro_batches",
                         grouped ? "ranks" : "micro_batches", counted ? "samples" : "micro_batches",
                         counted ? "tokens" : "micro_batches",
                         given >= ranged_version ? "range_begins" : "micro_batches"});
  if (field.member("format").text() != format_name) field.member("format").fail("'stowage-graph'");
  const std::int64_t version = field.member("version").integer();
  if (version < format_version || version > ranged_version)
    field.member("version").fail("version 1, 2, 3, 4, 5 or 6");
  Graph graph;
  graph.tensors = field.member("tensors").list(
      most_items, [version](const JsonField& item) { return read_tensor(item, version); });
  graph.ops = field.member("ops").list(most_items,
                                       [version](const JsonField& item) { return read_op(item, version); });
  graph.unit_names =
      field.member("units").list(most_items, [](const JsonField& item) { return item.text(); });
  if (field.has("micro_batches")) graph.micro_batches = field.member("micro_batches").id();
  if (field.has("gradient_groups")) graph.gradient_groups = field.member("gradient_groups").id();
  if (field.has("rank")) graph.share.rank = field.member("rank").id();
  if (field.has("ranks")) graph.share.ranks = field.member("ranks").id();
  if (const auto samples = field.optional_member("samples")) graph.samples = samples->integer();
  if (const auto tokens = field.optional_member("tokens")) graph.tokens = tokens->integer();
  if (const auto begins = field.optional_member("range_begins"))
    graph.range_begins = begins->list(most_items, [](const JsonField& item) { return item.id(); });
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
  Json json = {{"format", format_name},         {"version", version_of(graph)},
               {"tensors", std::move(tensors)}, {"ops", std::move(ops)},
               {"units", graph.unit_names},     {"loss", id_to_json(graph.loss)},
               {"clip", id_to_json(graph.clip)}};
  if (graph.micro_batches != 1) json["micro_batches"] = graph.micro_batches;
  if (!graph.range_begins.empty()) json["range_begins"] = graph.range_begins;
  if (graph.gradient_groups != 1) json["gradient_groups"] = graph.gradient_groups;
  if (graph.share.ranks != 1) {
    json["rank"] = graph.share.rank;
    json["ranks"] = graph.share.ranks;
  }
  if (graph.samples != 0) json["samples"] = graph.samples;
  if (graph.tokens != 0) json["tokens"] = graph.tokens;
  try {
    return json.dump(1);
  } catch (const Json::exception& error) {
    throw InvalidInput(fmt::format("graph to JSON: {}; use UTF-8 in names", error.what()));
  }
}

Graph graph_from_json(std::string_view text) {
  const JsonSource source{"graph JSON", "give the text that to_json wrote"};
  const Json json = parse_json(text, source);
  Graph graph = read_graph(JsonField(json, source));
  check(graph);
  return graph;
}

}  // namespace stowage
