#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "src/graph/json_field.h"
#include "stowage/error.h"
#include "stowage/plan.h"

namespace stowage {
namespace {

using Json = nlohmann::json;

constexpr std::string_view format_name = "stowage.plan";
// Version 5 knows updates before the gate that are made for good, and the gradient ring. Version 4 knows
// speculated updates. Version 3 has places by memory, and the kinds gate and commit; before it both were
// "host_step", commits on the device were launches, and a bucket was "on_host" and "pinned". Version 2 has
// transfers of parts of buckets.
constexpr std::uint64_t format_version = 5;
constexpr std::uint64_t oldest_version = 1;
constexpr double least_seconds = 1e-12, most_seconds = 1e12;  // limits of the seconds of a step

// Names by enumerator, in the order of the declaration.
constexpr std::array<std::string_view, 7> residency_names{"resident",   "held",      "streamed", "offloaded",
                                                          "recomputed", "transient", "host"};
constexpr std::array<std::string_view, 7> instruction_names{"launch", "recompute", "prefetch", "offload",
                                                            "gate",   "commit",    "speculate"};
constexpr std::array<std::string_view, 6> tensor_names{"parameter",  "gradient", "optimizer_state",
                                                       "activation", "input",    "workspace"};

template <class Row, std::size_t n>
constexpr std::array<std::string_view, n> names_of(const std::array<Row, n>& table) {
  std::array<std::string_view, n> names;
  for (std::size_t i = 0; i < n; ++i) names[i] = table[i].name;
  return names;
}
constexpr auto lane_names = names_of(lane_table);
constexpr auto memory_names = names_of(memory_table);
constexpr std::string_view layer_major = "layer_major", ahead_of_one = "batch_major", ahead = "ahead ";

[[noreturn]] void refuse(const std::string& where, std::string_view why) {
  throw InvalidInput(fmt::format("plan JSON: {} {}: pass a text that to_json(Plan) wrote", where, why));
}

// --- writing

template <class Enum, std::size_t n>
std::string name_of(Enum value, const std::array<std::string_view, n>& names) {
  return std::string(names.at(static_cast<std::size_t>(value)));
}

Json id_json(std::uint32_t id) { return id == no_id ? Json() : Json(id); }

// Refuses values that no plan has, though JSON could hold them.
void require_sense(const Plan& plan) {
  const auto is_time = [](double seconds) { return seconds >= 0 && seconds <= most_seconds; };
  const double step = plan.predicted_step_seconds;
  if (!is_time(step) || (!plan.instructions.empty() && step < least_seconds))
    refuse("predicted_step_seconds", fmt::format("is outside {} to {}", least_seconds, most_seconds));
  if (!is_time(plan.predicted_stall_seconds)) refuse("predicted_stall_seconds", "is no time");
  if (!is_time(plan.lower_bound_seconds)) refuse("lower_bound_seconds", "is no time");
  if (!is_time(plan.half_clipped_seconds)) refuse("half_clipped_seconds", "is no time");
  if (!is_time(plan.clipped_seconds)) refuse("clipped_seconds", "is no time");
  if (!std::has_single_bit(plan.alignment)) refuse("alignment", "is no power of two");
}

Json bucket_json(const Bucket& bucket) {
  Json tensors = Json::array();
  for (const BucketTensor& member : bucket.tensors) tensors.push_back({member.tensor, member.offset});
  Json places = Json::array();
  for (const BucketPlace& place : bucket.places) {
    places.push_back({{"memory", name_of(place.memory, memory_names)}, {"pinned", place.pinned}});
    if (place.ring_offset) places.back()["ring_offset"] = *place.ring_offset;
    if (place.ring_span > 0) places.back()["ring_span"] = place.ring_span;
  }
  return {{"name", bucket.name},
          {"kind", name_of(bucket.kind, tensor_names)},
          {"residency", name_of(bucket.residency, residency_names)},
          {"places", places},
          {"bytes", bucket.bytes},
          {"tensors", tensors}};
}

Json lifetime_json(const Lifetime& lifetime) {
  return {{"bucket", lifetime.bucket},
          {"first", lifetime.first},
          {"last", lifetime.last},
          {"offset", lifetime.offset},
          {"end", id_json(lifetime.end)}};
}

Json instruction_json(const Instruction& instruction) {
  Json waits = Json::array();
  for (const Wait& wait : instruction.waits) waits.push_back({wait.instruction, wait.steps_back});
  Json json = {{"kind", name_of(instruction.kind, instruction_names)},
               {"lane", name_of(instruction.lane, lane_names)},
               {"op", id_json(instruction.op)},
               {"lifetime", id_json(instruction.lifetime)},
               {"uses", instruction.uses},
               {"waits", waits}};
  if (instruction.part != ByteRange{}) json["part"] = {instruction.part.begin, instruction.part.end};
  return json;
}

template <class T, class Function>
Json list_json(const std::vector<T>& values, Function to) {
  Json list = Json::array();
  for (const T& value : values) list.push_back(to(value));
  return list;
}

// --- reading: every access is checked, `where` says where in the text

struct Node {
  const Json& json;
  std::string where;

  // Returns member `key` of an object.
  Node operator[](const char* key) const {
    if (!json.is_object()) refuse(where, "is no object");
    const auto found = json.find(key);
    if (found == json.end()) refuse(where, fmt::format("lacks \"{}\"", key));
    return {*found, fmt::format("{}.{}", where, key)};
  }
  Node operator[](std::size_t index) const { return {json[index], fmt::format("{}[{}]", where, index)}; }

  std::size_t size() const {
    if (!json.is_array()) refuse(where, "is no array");
    return json.size();
  }
  // Refuses anything but a pair.
  void expect_pair() const {
    if (size() != 2) refuse(where, "is no pair");
  }
  void expect_keys(std::size_t count) const {
    if (!json.is_object() || json.size() != count) refuse(where, "has unknown keys or is no object");
  }

  std::uint64_t unsigned_integer(std::uint64_t limit = std::numeric_limits<std::uint64_t>::max()) const {
    if (!json.is_number_unsigned()) refuse(where, "is no integer from 0 up");
    const auto value = json.get<std::uint64_t>();
    if (value > limit) refuse(where, fmt::format("is above {}", limit));
    return value;
  }
  std::int64_t integer() const {
    if (!json.is_number_integer()) refuse(where, "is no integer");
    if (json.is_number_unsigned() && json.get<std::uint64_t>() > std::uint64_t{1} << 62) {
      refuse(where, "is too large");
    }
    return json.get<std::int64_t>();
  }
  double number() const {
    if (!json.is_number()) refuse(where, "is no number");
    const double value = json.get<double>();
    if (!std::isfinite(value)) refuse(where, "is not finite");
    return value;
  }
  bool boolean() const {
    if (!json.is_boolean()) refuse(where, "is neither true nor false");
    return json.get<bool>();
  }
  std::string text() const {
    if (!json.is_string()) refuse(where, "is no string");
    return json.get<std::string>();
  }
  // Returns an id below `count`.
  std::uint32_t id(std::size_t count) const {
    const std::uint64_t value = unsigned_integer(no_id - 1U);
    if (value >= count) refuse(where, fmt::format("is {}, of {} there", value, count));
    return static_cast<std::uint32_t>(value);
  }
  std::uint32_t optional_id(std::size_t count) const { return json.is_null() ? no_id : id(count); }

  template <class Enum, std::size_t n>
  Enum one_of(const std::array<std::string_view, n>& names) const {
    const std::string name = text();
    for (std::size_t i = 0; i < n; ++i) {
      if (names[i] == name) return static_cast<Enum>(i);
    }
    refuse(where, "has an unknown name");
  }
};

// Ops and tensors belong to a graph that is not at hand: any id may be right.
constexpr std::size_t any_id = no_id;

std::vector<BucketPlace> read_places(const Node& node, std::uint64_t version) {
  std::vector<BucketPlace> places;
  if (version < 3) {
    const bool pinned = node["pinned"].boolean();
    if (node["on_host"].boolean()) return {{MemoryId::host, pinned}};
    if (pinned) refuse(node.where, "is pinned and not on the host");
    return places;
  }
  const Node list = node["places"];
  if (list.size() > memory_table.size()) refuse(list.where, "has more places than there are memories");
  for (std::size_t i = 0; i < list.size(); ++i) {
    const bool in_ring = version > 4 && list[i].json.is_object() && list[i].json.contains("ring_offset");
    const bool by_slices = in_ring && list[i].json.contains("ring_span");
    list[i].expect_keys(by_slices ? 4 : in_ring ? 3 : 2);
    const auto memory = list[i]["memory"].one_of<MemoryId>(memory_names);
    if (row_of(memory).has_arena) refuse(list[i].where, "is in a memory with an arena");
    if (std::any_of(places.begin(), places.end(),
                    [&](const BucketPlace& place) { return place.memory == memory; }))
      refuse(list[i].where, "is a second place in one memory");
    places.push_back({memory, list[i]["pinned"].boolean()});
    if (in_ring) places.back().ring_offset = list[i]["ring_offset"].unsigned_integer();
    if (by_slices) places.back().ring_span = list[i]["ring_span"].unsigned_integer();
  }
  return places;
}

Bucket read_bucket(const Node& node, std::uint64_t version) {
  node.expect_keys(version < 3 ? 7 : 6);
  Bucket bucket;
  bucket.name = node["name"].text();
  bucket.kind = node["kind"].one_of<TensorKind>(tensor_names);
  bucket.residency = node["residency"].one_of<Residency>(residency_names);
  bucket.places = read_places(node, version);
  bucket.bytes = node["bytes"].unsigned_integer();
  const Node tensors = node["tensors"];
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Node pair = tensors[i];
    pair.expect_pair();
    bucket.tensors.push_back({pair[std::size_t{0}].id(any_id), pair[std::size_t{1}].unsigned_integer()});
  }
  return bucket;
}

Lifetime read_lifetime(const Node& node, std::size_t buckets, std::size_t instructions) {
  node.expect_keys(5);
  Lifetime lifetime;
  lifetime.bucket = node["bucket"].id(buckets);
  lifetime.first = node["first"].integer();
  lifetime.last = node["last"].integer();
  lifetime.offset = node["offset"].unsigned_integer();
  lifetime.end = node["end"].optional_id(instructions);
  return lifetime;
}

// Returns the part of a bucket that a transfer moves, or of the undo records. Refuses an empty part.
ByteRange read_part(const Node& node, const Instruction& instruction, const Plan& plan) {
  node.expect_pair();
  const bool is_record = instruction.kind == InstructionKind::speculate;
  if (!is_record && instruction.lifetime == no_id)
    refuse(node.where, "is of an instruction that moves nothing");
  const Bytes bytes =
      is_record ? plan.undo_bytes : plan.buckets[plan.lifetimes[instruction.lifetime].bucket].bytes;
  const ByteRange part{node[std::size_t{0}].unsigned_integer(bytes),
                       node[std::size_t{1}].unsigned_integer(bytes)};
  if (part.begin >= part.end) refuse(node.where, "is empty");
  return part;
}

// Returns the kind. Before version 3 the place of the gate tells the gate and the commits from other kinds.
InstructionKind read_kind(const Node& node, LaneRole lane, InstructionId id, InstructionId gate,
                          std::uint64_t version) {
  const bool is_old = version < 3;
  if (is_old && node.text() == "host_step") {
    if (lane != LaneRole::host) refuse(node.where, "is no kind of that lane");
    return id == gate ? InstructionKind::gate : InstructionKind::commit;
  }
  const auto kind = node.one_of<InstructionKind>(instruction_names);
  if (kind == InstructionKind::speculate && version < 4) refuse(node.where, "has an unknown name");
  if (!is_old) return kind;
  if (kind >= InstructionKind::gate) refuse(node.where, "has an unknown name");
  if (kind == InstructionKind::launch && lane != LaneRole::compute)
    refuse(node.where, "is no kind of that lane");
  return kind == InstructionKind::launch && id > gate ? InstructionKind::commit : kind;
}

Instruction read_instruction(const Node& node, const Plan& plan, std::size_t instructions,
                             std::uint64_t version) {
  const bool has_part = version > 1 && node.json.is_object() && node.json.contains("part");
  const std::size_t lifetimes = plan.lifetimes.size();
  node.expect_keys(has_part ? 7 : 6);
  Instruction instruction;
  instruction.lane = node["lane"].one_of<LaneRole>(lane_names);
  instruction.kind = read_kind(node["kind"], instruction.lane,
                               static_cast<InstructionId>(plan.instructions.size()), plan.gate, version);
  instruction.op = node["op"].optional_id(any_id);
  instruction.lifetime = node["lifetime"].optional_id(lifetimes);
  const Node uses = node["uses"];
  for (std::size_t i = 0; i < uses.size(); ++i) instruction.uses.push_back(uses[i].id(lifetimes));
  const Node waits = node["waits"];
  for (std::size_t i = 0; i < waits.size(); ++i) {
    const Node pair = waits[i];
    pair.expect_pair();
    const auto steps_back = static_cast<std::uint32_t>(pair[std::size_t{1}].unsigned_integer(1));
    instruction.waits.push_back({pair[std::size_t{0}].id(instructions), steps_back});
  }
  if (has_part) instruction.part = read_part(node["part"], instruction, plan);
  return instruction;
}

void read_lists(const Node& node, std::uint64_t version, Plan& plan) {
  const Node buckets = node["buckets"];
  const Node lifetimes = node["lifetimes"];
  const Node instructions = node["instructions"];
  for (std::size_t i = 0; i < buckets.size(); ++i) plan.buckets.push_back(read_bucket(buckets[i], version));
  for (std::size_t i = 0; i < lifetimes.size(); ++i) {
    plan.lifetimes.push_back(read_lifetime(lifetimes[i], buckets.size(), instructions.size()));
  }
  for (std::size_t i = 0; i < instructions.size(); ++i) {
    plan.instructions.push_back(read_instruction(instructions[i], plan, instructions.size(), version));
  }
}

MicroBatchOrder read_order(const Node& node) {
  const std::string text = node.text();
  if (text == layer_major) return MicroBatchOrder::layer_major;
  if (text == ahead_of_one) return MicroBatchOrder::ahead(1);
  std::uint32_t forwards = 0;
  const char* end = text.data() + text.size();
  if (!text.starts_with(ahead) || std::from_chars(text.data() + ahead.size(), end, forwards).ptr != end ||
      forwards == 0)
    refuse(node.where, "has an unknown name");
  return MicroBatchOrder::ahead(forwards);
}

Plan read_plan(const Node& node) {
  if (node["format"].text() != format_name) refuse("format", "is not \"stowage.plan\"");
  const std::uint64_t version = node["version"].unsigned_integer();
  if (version < oldest_version || version > format_version) {
    refuse("version",
           fmt::format("is not one of {} to {}, which this program reads", oldest_version, format_version));
  }
  node.expect_keys((node.json.contains("order") ? 20U : 19U) + (version < 4 ? 0U : 3U) +
                   (version < 5 ? 0U : 2U));
  Plan plan;
  plan.gate = node["gate"].optional_id(node["instructions"].size());
  if (version > 3) plan.undo_bytes = node["undo_bytes"].unsigned_integer();
  if (version > 4) plan.optimizer_in_backward = node["optimizer_in_backward"].boolean();
  if (version > 4) plan.ring_bytes = node["ring_bytes"].unsigned_integer();
  read_lists(node, version, plan);
  plan.policy = node["policy"].text();
  if (node.json.contains("order")) plan.order = read_order(node["order"]);
  plan.alignment = node["alignment"].unsigned_integer();
  plan.device_peak_bytes = node["device_peak_bytes"].unsigned_integer();
  plan.live_peak_bytes = node["live_peak_bytes"].unsigned_integer();
  plan.host_bytes = node["host_bytes"].unsigned_integer();
  plan.pinned_bytes = node["pinned_bytes"].unsigned_integer();
  plan.h2d_bytes = node["h2d_bytes"].unsigned_integer();
  plan.d2h_bytes = node["d2h_bytes"].unsigned_integer();
  plan.bucket_bytes = node["bucket_bytes"].unsigned_integer();
  plan.predicted_step_seconds = node["predicted_step_seconds"].number();
  plan.predicted_stall_seconds = node["predicted_stall_seconds"].number();
  plan.half_clipped_seconds =
      version > 3 ? node["half_clipped_seconds"].number() : plan.predicted_step_seconds;
  plan.clipped_seconds = version > 3 ? node["clipped_seconds"].number() : plan.predicted_step_seconds;
  plan.lower_bound_seconds = node["lower_bound_seconds"].number();
  plan.bound_by = node["bound_by"].text();
  require_sense(plan);
  return plan;
}

}  // namespace

std::string_view to_string(Residency residency) {
  return residency_names.at(static_cast<std::size_t>(residency));
}

std::string_view to_string(InstructionKind kind) {
  return instruction_names.at(static_cast<std::size_t>(kind));
}

std::string to_string(MicroBatchOrder order) {
  if (order.is_layer_major) return std::string(layer_major);
  return order.forwards == 1 ? std::string(ahead_of_one) : fmt::format("{}{}", ahead, order.forwards);
}

std::string to_json(const Plan& plan) {
  require_sense(plan);
  const Json json = {{"format", format_name},
                     {"version", format_version},
                     {"policy", plan.policy},
                     {"order", to_string(plan.order)},
                     {"buckets", list_json(plan.buckets, bucket_json)},
                     {"lifetimes", list_json(plan.lifetimes, lifetime_json)},
                     {"instructions", list_json(plan.instructions, instruction_json)},
                     {"gate", id_json(plan.gate)},
                     {"alignment", plan.alignment},
                     {"device_peak_bytes", plan.device_peak_bytes},
                     {"live_peak_bytes", plan.live_peak_bytes},
                     {"host_bytes", plan.host_bytes},
                     {"pinned_bytes", plan.pinned_bytes},
                     {"undo_bytes", plan.undo_bytes},
                     {"optimizer_in_backward", plan.optimizer_in_backward},
                     {"ring_bytes", plan.ring_bytes},
                     {"h2d_bytes", plan.h2d_bytes},
                     {"d2h_bytes", plan.d2h_bytes},
                     {"bucket_bytes", plan.bucket_bytes},
                     {"predicted_step_seconds", plan.predicted_step_seconds},
                     {"predicted_stall_seconds", plan.predicted_stall_seconds},
                     {"half_clipped_seconds", plan.half_clipped_seconds},
                     {"clipped_seconds", plan.clipped_seconds},
                     {"lower_bound_seconds", plan.lower_bound_seconds},
                     {"bound_by", plan.bound_by}};
  try {
    return json.dump(1);
  } catch (const Json::exception& error) {
    throw InvalidInput(fmt::format("plan JSON: a name is no UTF-8 ({}): rename it", error.what()));
  }
}

Plan plan_from_json(std::string_view text) {
  const Json json = parse_json(text, {"plan JSON", "pass a text that to_json(Plan) wrote"});
  try {
    return read_plan({json, "plan"});
  } catch (const Json::exception& error) {
    refuse("text", fmt::format("does not read ({})", error.what()));
  }
}

}  // namespace stowage
