#include "src/graph/trace_tensors.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/base/printable.h"
#include "src/graph/shape.h"
#include "stowage/error.h"

namespace stowage {
namespace {

bool lasts(TensorKind kind) { return kind == TensorKind::parameter || kind == TensorKind::optimizer_state; }

void require_trainable(const JsonField& line, const Tensor& tensor) {
  const char* field = line.has("bytes") ? "bytes" : "type";
  if (line.has("bytes") || tensor.type == DataType::i32 || tensor.type == DataType::i16 ||
      tensor.type == DataType::u8)
    line.member(field).refuse("says nothing that AdamW could train; give f32, bf16, f16 or f64 and a shape");
}

constexpr std::size_t longest_name = 4096;

AdamW read_optimizer(const JsonField& field) {
  field.require_members({"name", "beta1", "beta2", "epsilon", "weight_decay", "clip"});
  if (field.member("name").text() != "adamw") field.member("name").fail("'adamw'");
  AdamW optimizer;
  const auto set = [&](const char* name, double& value) {
    if (const auto given = field.optional_member(name)) value = number_up_to(*given, most_trace_seconds);
  };
  set("beta1", optimizer.beta1);
  set("beta2", optimizer.beta2);
  set("epsilon", optimizer.epsilon);
  set("weight_decay", optimizer.weight_decay);
  set("clip", optimizer.clip);
  return optimizer;
}

}  // namespace

void TraceTensors::read(std::size_t number, const JsonField& line) {
  line.require_members(
      {"tensor", "kind", "type", "shape", "bytes", "of", version_ >= typed_trace_version ? "trained" : "of"});
  if (graph_.tensors.size() == most_items) line.refuse(fmt::format("is tensor {}", most_items + 1));
  Tensor tensor;
  tensor.name = trace_name(line.member("tensor"));
  tensor.kind = line.member("kind").one_of(tensor_kinds);
  read_size(line, tensor);
  if (const auto trained = line.optional_member("trained")) {
    tensor.trained = trained->boolean();
    if (tensor.kind != TensorKind::parameter)
      trained->refuse(fmt::format("stands on a tensor of kind {}, not parameter", to_string(tensor.kind)));
  }
  const auto of = line.optional_member("of");
  if (of && tensor.kind != TensorKind::gradient)
    of->refuse(fmt::format("stands on a tensor of kind {}, not gradient", to_string(tensor.kind)));
  if (trainable_ && tensor.kind == TensorKind::parameter && tensor.trained) require_trainable(line, tensor);
  const TensorId id = add(number, line.member("tensor"), std::move(tensor));
  if (of) set_gradient(*of, id);
}

void TraceTensors::read_size(const JsonField& line, Tensor& tensor) {
  if (const auto bytes = line.optional_member("bytes")) {
    for (const char* other : {"type", "shape"}) {
      if (line.has(other)) line.member(other).refuse("stands beside 'bytes'; give one of them");
    }
    constexpr Bytes word = 4;
    tensor.type = DataType::i32;
    tensor.shape = {static_cast<std::int64_t>((trace_bytes(*bytes) + word - 1) / word)};
    return;
  }
  tensor.type = line.member("type").one_of(data_types);
  const JsonField shape = line.member("shape");
  tensor.shape = shape.list(most_dimensions, [](const JsonField& item) { return item.integer(); });
  const auto bytes = checked_bytes(tensor.shape, tensor.type);
  if (!bytes || *bytes > most_trace_bytes) shape.fail("of dimensions from 1 up and at most 2^60 bytes");
}

TensorId TraceTensors::add(std::size_t number, const JsonField& name, Tensor tensor) {
  const auto id = static_cast<TensorId>(graph_.tensors.size());
  const auto [place, added] = by_name_.emplace(tensor.name, id);
  if (!added)
    name.refuse(fmt::format("names '{}', which line {} names already", printable(tensor.name),
                            lines_[place->second]));
  total_ += tensor.bytes();
  if (total_ > most_trace_bytes) name.refuse("brings the bytes of all tensors above 2^60");
  graph_.tensors.push_back(std::move(tensor));
  lines_.push_back(number);
  producers_.push_back(no_id);
  gradients_.push_back(no_id);
  return id;
}

TensorId TraceTensors::known(const JsonField& field) const {
  const std::string name = field.text();
  const auto found = by_name_.find(name);
  if (found == by_name_.end())
    field.refuse(fmt::format("names '{}', which no line above describes", printable(name)));
  return found->second;
}

void TraceTensors::set_gradient(const JsonField& of, TensorId gradient) {
  const TensorId parameter = known(of);
  const Tensor& target = graph_.tensors[parameter];
  if (target.kind != TensorKind::parameter)
    of.refuse(fmt::format("names '{}', which is of kind {}, not parameter", printable(target.name),
                          to_string(target.kind)));
  if (!target.trained) of.refuse(fmt::format("names '{}', which is not trained", printable(target.name)));
  if (gradients_[parameter] != no_id)
    of.refuse(fmt::format("names '{}', whose final gradient stands in line {} already",
                          printable(target.name), lines_[gradients_[parameter]]));
  gradients_[parameter] = gradient;
}

// Whether an op must still write the value.
bool TraceTensors::is_missing(TensorId id) const {
  const TensorKind kind = graph_.tensors[id].kind;
  return !lasts(kind) && kind != TensorKind::input && producers_[id] == no_id;
}

TensorId TraceTensors::read_by(const Op& op, const JsonField& field) const {
  const TensorId id = known(field);
  const Tensor& tensor = graph_.tensors[id];
  if (tensor.kind == TensorKind::workspace)
    field.refuse(fmt::format("names the workspace '{}', which nobody reads", printable(tensor.name)));
  if (tensor.kind == TensorKind::optimizer_state && op.phase != Phase::update)
    field.refuse(
        fmt::format("names the optimizer state '{}', which only update ops touch", printable(tensor.name)));
  if (is_missing(id))
    field.refuse(fmt::format("names '{}', which no op above writes", printable(tensor.name)));
  return id;
}

TensorId TraceTensors::written_by(const Op& op, const JsonField& field) {
  const TensorId id = known(field);
  const Tensor& tensor = graph_.tensors[id];
  if (tensor.kind == TensorKind::input)
    field.refuse(fmt::format("names the input '{}', which the caller gives", printable(tensor.name)));
  if (lasts(tensor.kind) && op.phase != Phase::update)
    field.refuse(fmt::format("names '{}' of kind {}, which only update ops write", printable(tensor.name),
                             to_string(tensor.kind)));
  if (!tensor.trained) field.refuse(fmt::format("names '{}', which is not trained", printable(tensor.name)));
  if (producers_[id] != no_id)
    field.refuse(
        fmt::format("names '{}', which is written above already; what works in place writes a new "
                    "tensor, see 'may_alias'",
                    tensor.name));
  producers_[id] = static_cast<OpId>(graph_.ops.size());
  return id;
}

void TraceTensors::require_complete() const {
  for (TensorId id = 0; id < graph_.tensors.size(); ++id) {
    const Tensor& tensor = graph_.tensors[id];
    if (is_missing(id))
      refuse_trace_line(lines_[id], fmt::format("no op writes '{}'", printable(tensor.name)));
    if (trainable_ && tensor.kind == TensorKind::parameter && tensor.trained) require_gradient(id);
  }
}

void TraceTensors::require_gradient(TensorId parameter) const {
  const std::string& name = graph_.tensors[parameter].name;
  const TensorId gradient = gradients_[parameter];
  if (gradient == no_id)
    refuse_trace_line(
        lines_[parameter],
        fmt::format("no gradient is 'of' the parameter '{}'; one that is not trained says \"trained\": false",
                    printable(name)));
  if (producers_[gradient] == no_id || graph_.ops[producers_[gradient]].phase != Phase::backward)
    refuse_trace_line(lines_[gradient],
                      fmt::format("no backward op writes '{}', the gradient of '{}'",
                                  printable(graph_.tensors[gradient].name), printable(name)));
}

std::optional<TensorId> TraceTensors::find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? std::nullopt : std::optional(found->second);
}

JsonSource source_of_trace_line(std::size_t line) {
  return {fmt::format("trace line {}", line), trace_remedy, "the line"};
}

void refuse_trace_line(std::size_t line, const std::string& why) {
  throw InvalidInput(fmt::format("trace line {}: {}; {}", line, why, trace_remedy));
}

std::string trace_name(const JsonField& field) {
  std::string name = field.text();
  const auto control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (name.empty() || name.size() > longest_name || std::any_of(name.begin(), name.end(), control))
    field.fail(fmt::format("a name of 1 to {} bytes without control characters", longest_name));
  return name;
}

double number_up_to(const JsonField& field, double most) {
  const double value = field.number();
  if (value < 0 || value > most) field.fail(fmt::format("a number from 0 to {:g}", most));
  return value;
}

Bytes trace_bytes(const JsonField& field) {
  const std::int64_t value = field.integer();
  if (value < 1 || static_cast<Bytes>(value) > most_trace_bytes)
    field.fail("a number of bytes from 1 to 2^60");
  return static_cast<Bytes>(value);
}

std::int64_t trace_count(const JsonField& field) {
  constexpr std::int64_t most = std::int64_t{1} << 48U;
  const std::int64_t value = field.integer();
  if (value < 1 || value > most) field.fail("a number from 1 to 2^48");
  return value;
}

TraceHeader read_trace_header(const JsonField& line) {
  if (!line.has("stowage_trace")) line.member("stowage_trace");
  TraceHeader header;
  header.version = line.member("stowage_trace").integer();
  if (header.version < 1 || header.version > typed_trace_version)
    line.member("stowage_trace").fail("1 or 2, the versions that this program reads");
  const bool counted = header.version >= typed_trace_version;
  line.require_members({"stowage_trace", "loss", "optimizer", "clip", "note", counted ? "samples" : "note",
                        counted ? "tokens" : "note"});
  if (const auto samples = line.optional_member("samples")) header.samples = trace_count(*samples);
  if (const auto tokens = line.optional_member("tokens")) header.tokens = trace_count(*tokens);
  header.loss = trace_name(line.member("loss"));
  if (const auto note = line.optional_member("note")) note->text();
  if (const auto optimizer = line.optional_member("optimizer")) header.optimizer = read_optimizer(*optimizer);
  if (const auto clip = line.optional_member("clip")) header.clip = trace_name(*clip);
  if (header.optimizer && !header.clip.empty())
    line.member("clip").refuse("stands beside 'optimizer', which brings its own");
  if (!header.optimizer && header.clip.empty())
    line.refuse("has neither 'optimizer' nor, for a trace with its own update ops, 'clip'");
  return header;
}

}  // namespace stowage
