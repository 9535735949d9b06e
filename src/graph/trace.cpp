// Traces: every line is judged where it is read, against the lines above it; check() judges the whole.
#include "stowage/trace.h"

#include <fmt/format.h>

#include <cmath>
#include <unordered_map>

#include "src/graph/json_field.h"
#include "src/graph/shape.h"
#include "src/graph/update_ops.h"
#include "stowage/error.h"

namespace stowage {
namespace {

constexpr std::int64_t trace_version = 1;
constexpr std::size_t most_lines = std::size_t{1} << 24;
constexpr std::size_t most_characters = std::size_t{1} << 20;  // of a line
constexpr std::size_t longest_name = 4096;
constexpr Bytes most_bytes = Bytes{1} << 60;  // of all tensors: sums of sizes stay far from 64 bits
constexpr double most_seconds = 1e6;
constexpr double most_work = 1e24;  // flops, bytes of one op
constexpr const char* remedy = "correct the line, docs/trace.md says what it may hold";

JsonSource source_of_line(std::size_t line) {
  return {fmt::format("trace line {}", line), remedy, "the line"};
}

std::string name_of(const JsonField& field) {
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

Bytes bytes_of(const JsonField& field) {
  const std::int64_t value = field.integer();
  if (value < 1 || static_cast<Bytes>(value) > most_bytes) field.fail("a number of bytes from 1 to 2^60");
  return static_cast<Bytes>(value);
}

AdamW read_optimizer(const JsonField& field) {
  field.require_members({"name", "beta1", "beta2", "epsilon", "weight_decay", "clip"});
  if (field.member("name").text() != "adamw") field.member("name").fail("'adamw'");
  AdamW optimizer;
  const auto set = [&](const char* name, double& value) {
    if (const auto given = field.optional_member(name)) value = number_up_to(*given, most_seconds);
  };
  set("beta1", optimizer.beta1);
  set("beta2", optimizer.beta2);
  set("epsilon", optimizer.epsilon);
  set("weight_decay", optimizer.weight_decay);
  set("clip", optimizer.clip);
  return optimizer;
}

struct Header {
  std::string loss;
  std::string clip;  // empty: none
  std::optional<AdamW> optimizer;
};

Header read_header(const JsonField& line) {
  if (!line.has("stowage_trace")) line.member("stowage_trace");
  line.require_members({"stowage_trace", "loss", "optimizer", "clip", "note"});
  if (line.member("stowage_trace").integer() != trace_version)
    line.member("stowage_trace").fail("1, the version that this program reads");
  Header header;
  header.loss = name_of(line.member("loss"));
  if (const auto note = line.optional_member("note")) note->text();
  if (const auto optimizer = line.optional_member("optimizer")) header.optimizer = read_optimizer(*optimizer);
  if (const auto clip = line.optional_member("clip")) header.clip = name_of(*clip);
  if (header.optimizer && !header.clip.empty())
    line.member("clip").refuse("stands beside 'optimizer', which brings its own");
  if (!header.optimizer && header.clip.empty())
    line.refuse("has neither 'optimizer' nor, for a trace with its own update ops, 'clip'");
  return header;
}

class TraceReader {
 public:
  void read(std::size_t number, std::string_view text) {
    number_ = number;
    if (text.size() > most_characters)
      throw InvalidInput(
          fmt::format("trace line {}: has more than {} characters; {}", number, most_characters, remedy));
    const JsonSource source = source_of_line(number);
    const nlohmann::json json = parse_json(text, source);
    const JsonField line(json, source);
    if (!header_) {
      header_ = read_header(line);
      header_line_ = number;
    } else if (line.has("tensor")) {
      read_tensor(line);
    } else if (line.has("op")) {
      read_op(line);
    } else {
      line.fail("an object with 'tensor' or 'op'");
    }
  }

  Graph finish() {
    if (!header_) throw InvalidInput(fmt::format("trace line 1: there is no header; {}", remedy));
    for (TensorId id = 0; id < graph_.tensors.size(); ++id) require_complete(id);
    graph_.loss = result("loss", header_->loss);
    take_loss_as_f64();
    if (header_->optimizer) {
      append_update(graph_, gradients_, *header_->optimizer);
    } else {
      graph_.clip = result("clip", header_->clip);
    }
    try {
      check(graph_);
    } catch (const InvalidInput& error) {
      throw InvalidInput(fmt::format("trace: {}; docs/trace.md says what a trace may hold", error.what()));
    }
    return std::move(graph_);
  }

 private:
  std::size_t number_ = 0;  // of the line that is read
  std::optional<Header> header_;
  std::size_t header_line_ = 0;
  Graph graph_;
  Bytes total_ = 0;
  std::unordered_map<std::string, TensorId> tensors_;
  std::unordered_map<std::string, OpId> ops_;
  std::unordered_map<std::string, std::uint32_t> units_;
  std::uint32_t unit_ = no_id;  // of the op before
  // By tensor.
  std::vector<std::size_t> lines_;
  std::vector<OpId> producers_;
  std::vector<TensorId> gradients_;  // of a parameter: the final one

  [[noreturn]] static void refuse(std::size_t line, const std::string& why) {
    throw InvalidInput(fmt::format("trace line {}: {}; {}", line, why, remedy));
  }

  // --- tensors

  void read_tensor(const JsonField& line) {
    line.require_members({"tensor", "kind", "type", "shape", "bytes", "of"});
    if (graph_.tensors.size() == most_items) line.refuse(fmt::format("is tensor {}", most_items + 1));
    Tensor tensor;
    tensor.name = name_of(line.member("tensor"));
    tensor.kind = line.member("kind").one_of(tensor_kinds);
    read_size(line, tensor);
    const auto of = line.optional_member("of");
    if (of && tensor.kind != TensorKind::gradient)
      of->refuse(fmt::format("stands on a tensor of kind {}, not gradient", to_string(tensor.kind)));
    if (header_->optimizer && tensor.kind == TensorKind::parameter) require_trainable(line, tensor);
    const TensorId id = add_tensor(line.member("tensor"), std::move(tensor));
    if (of) set_gradient(*of, id);
  }

  static void read_size(const JsonField& line, Tensor& tensor) {
    if (const auto bytes = line.optional_member("bytes")) {
      for (const char* other : {"type", "shape"}) {
        if (line.has(other)) line.member(other).refuse("stands beside 'bytes'; give one of them");
      }
      constexpr Bytes word = 4;
      tensor.type = DataType::i32;
      tensor.shape = {static_cast<std::int64_t>((bytes_of(*bytes) + word - 1) / word)};
      return;
    }
    tensor.type = line.member("type").one_of(data_types);
    const JsonField shape = line.member("shape");
    tensor.shape = shape.list(most_dimensions, [](const JsonField& item) { return item.integer(); });
    const auto bytes = checked_bytes(tensor.shape, tensor.type);
    if (!bytes || *bytes > most_bytes) shape.fail("of dimensions from 1 up and at most 2^60 bytes");
  }

  static void require_trainable(const JsonField& line, const Tensor& tensor) {
    const char* field = line.has("bytes") ? "bytes" : "type";
    if (line.has("bytes") || tensor.type == DataType::i32 || tensor.type == DataType::i16)
      line.member(field).refuse("says nothing that AdamW could train; give f32, bf16 or f64 and a shape");
  }

  TensorId add_tensor(const JsonField& name, Tensor tensor) {
    const auto id = static_cast<TensorId>(graph_.tensors.size());
    const auto [place, added] = tensors_.emplace(tensor.name, id);
    if (!added)
      name.refuse(fmt::format("names '{}', which line {} names already", tensor.name, lines_[place->second]));
    total_ += tensor.bytes();
    if (total_ > most_bytes) name.refuse("brings the bytes of all tensors above 2^60");
    graph_.tensors.push_back(std::move(tensor));
    lines_.push_back(number_);
    producers_.push_back(no_id);
    gradients_.push_back(no_id);
    return id;
  }

  TensorId known(const JsonField& field) const {
    const std::string name = field.text();
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) field.refuse(fmt::format("names '{}', which no line above describes", name));
    return found->second;
  }

  void set_gradient(const JsonField& of, TensorId gradient) {
    const TensorId parameter = known(of);
    const Tensor& target = graph_.tensors[parameter];
    if (target.kind != TensorKind::parameter)
      of.refuse(
          fmt::format("names '{}', which is of kind {}, not parameter", target.name, to_string(target.kind)));
    if (gradients_[parameter] != no_id)
      of.refuse(fmt::format("names '{}', whose final gradient stands in line {} already", target.name,
                            lines_[gradients_[parameter]]));
    gradients_[parameter] = gradient;
  }

  // --- ops

  void read_op(const JsonField& line) {
    line.require_members({"op", "phase", "unit", "kernel", "reads", "writes", "may_alias", "seconds", "flops",
                          "bytes", "workspace"});
    if (graph_.ops.size() == most_items) line.refuse(fmt::format("is op {}", most_items + 1));
    Op op;
    op.name = name_of(line.member("op"));
    if (!ops_.emplace(op.name, static_cast<OpId>(graph_.ops.size())).second)
      line.member("op").refuse(fmt::format("names '{}', which is an op above already", op.name));
    op.kernel = line.has("kernel") ? name_of(line.member("kernel")) : "traced";
    read_phase(line, op);
    read_unit(line, op);
    read_operands(line, op);
    if (const auto aliases = line.optional_member("may_alias")) read_aliases(*aliases, op);
    read_cost(line, op);
    graph_.ops.push_back(std::move(op));
  }

  void read_phase(const JsonField& line, Op& op) const {
    const JsonField field = line.member("phase");
    op.phase = field.one_of(phases);
    if (!graph_.ops.empty() && op.phase < graph_.ops.back().phase)
      field.refuse(fmt::format("is {} behind ops of {}", to_string(op.phase), to_string(last_phase())));
    if (op.phase == Phase::update && header_->optimizer)
      field.refuse("is update, but the header's 'optimizer' stands for that phase; leave one of them out");
  }
  Phase last_phase() const { return graph_.ops.back().phase; }

  void read_unit(const JsonField& line, Op& op) {
    const auto field = line.optional_member("unit");
    if (op.phase == Phase::update) {
      if (field) field->refuse("stands on an update op, which belongs to no unit");
      return;
    }
    if (field) {
      enter_unit(*field, op.phase);
    } else if (unit_ == no_id) {
      add_unit("step");
    }
    op.unit = unit_;
  }

  void add_unit(const std::string& name) {
    unit_ = static_cast<std::uint32_t>(graph_.unit_names.size());
    units_.emplace(name, unit_);
    graph_.unit_names.push_back(name);
  }

  void enter_unit(const JsonField& field, Phase phase) {
    const std::string name = name_of(field);
    const auto found = units_.find(name);
    if (phase == Phase::forward) {
      if (found == units_.end()) return add_unit(name);
      if (found->second != unit_)
        field.refuse(fmt::format("is '{}' again: forward ops of one unit must follow one another", name));
      return;
    }
    if (found == units_.end()) field.refuse(fmt::format("names '{}', which has no forward op", name));
    if (last_phase() == Phase::backward && found->second > unit_)
      field.refuse(fmt::format("is '{}' behind '{}': backward must come unit by unit in the opposite order",
                               name, graph_.unit_names[unit_]));
    unit_ = found->second;
  }

  void read_operands(const JsonField& line, Op& op) {
    op.reads =
        line.member("reads").list(most_operands, [&](const JsonField& item) { return read_of(item, op); });
    op.writes =
        line.member("writes").list(most_operands, [&](const JsonField& item) { return write_of(item, op); });
    const auto workspace = line.optional_member("workspace");
    if (!workspace) return;
    constexpr Bytes word = 4;
    const auto words = static_cast<std::int64_t>((bytes_of(*workspace) + word - 1) / word);
    const TensorId id =
        add_tensor(*workspace, {op.name + ".workspace", DataType::i32, {words}, TensorKind::workspace, {}});
    producers_[id] = static_cast<OpId>(graph_.ops.size());
    op.writes.push_back(id);
  }

  static bool lasts(TensorKind kind) {
    return kind == TensorKind::parameter || kind == TensorKind::optimizer_state;
  }

  TensorId read_of(const JsonField& field, const Op& op) const {
    const TensorId id = known(field);
    const Tensor& tensor = graph_.tensors[id];
    if (tensor.kind == TensorKind::workspace)
      field.refuse(fmt::format("names the workspace '{}', which nobody reads", tensor.name));
    if (tensor.kind == TensorKind::optimizer_state && op.phase != Phase::update)
      field.refuse(fmt::format("names the optimizer state '{}', which only update ops touch", tensor.name));
    if (!lasts(tensor.kind) && tensor.kind != TensorKind::input && producers_[id] == no_id)
      field.refuse(fmt::format("names '{}', which no op above writes", tensor.name));
    return id;
  }

  TensorId write_of(const JsonField& field, const Op& op) {
    const TensorId id = known(field);
    const Tensor& tensor = graph_.tensors[id];
    if (tensor.kind == TensorKind::input)
      field.refuse(fmt::format("names the input '{}', which the caller gives", tensor.name));
    if (lasts(tensor.kind) && op.phase != Phase::update)
      field.refuse(fmt::format("names '{}' of kind {}, which only update ops write", tensor.name,
                               to_string(tensor.kind)));
    if (producers_[id] != no_id)
      field.refuse(
          fmt::format("names '{}', which is written above already; what works in place writes a new "
                      "tensor, see 'may_alias'",
                      tensor.name));
    producers_[id] = static_cast<OpId>(graph_.ops.size());
    return id;
  }

  void read_aliases(const JsonField& field, Op& op) const {
    const auto place = [](const JsonField& name, const std::vector<TensorId>& in, TensorId id) {
      const auto found = std::find(in.begin(), in.end(), id);
      if (found == in.end()) name.fail("an operand of this op");
      return static_cast<std::uint32_t>(found - in.begin());
    };
    op.may_alias = field.list(most_operands, [&](const JsonField& pair) {
      const auto names = pair.list(2, [](const JsonField& item) { return item; });
      if (names.size() != 2) pair.fail("a pair of a written and a read tensor");
      const TensorId written = known(names[0]);
      const TensorId read = known(names[1]);
      if (graph_.tensors[written].bytes() != graph_.tensors[read].bytes())
        pair.fail("a pair of tensors of the same size");
      return Alias{place(names[0], op.writes, written), place(names[1], op.reads, read)};
    });
  }

  void read_cost(const JsonField& line, Op& op) const {
    if (const auto flops = line.optional_member("flops")) op.cost.flops = number_up_to(*flops, most_work);
    if (const auto bytes = line.optional_member("bytes")) op.cost.bytes = number_up_to(*bytes, most_work);
    if (const auto seconds = line.optional_member("seconds"))
      op.cost.seconds = number_up_to(*seconds, most_seconds);
    if (op.cost.bytes == 0) op.cost.bytes = operand_bytes(graph_, op);
  }

  // --- the whole

  void require_complete(TensorId id) const {
    const Tensor& tensor = graph_.tensors[id];
    if (!lasts(tensor.kind) && tensor.kind != TensorKind::input && producers_[id] == no_id)
      refuse(lines_[id], fmt::format("no op writes '{}'", tensor.name));
    if (!header_->optimizer || tensor.kind != TensorKind::parameter) return;
    const TensorId gradient = gradients_[id];
    if (gradient == no_id)
      refuse(lines_[id],
             fmt::format("no gradient is 'of' the parameter '{}'; a weight that is not trained is an "
                         "input",
                         tensor.name));
    if (producers_[gradient] == no_id || graph_.ops[producers_[gradient]].phase != Phase::backward)
      refuse(lines_[gradient], fmt::format("no backward op writes '{}', the gradient of '{}'",
                                           graph_.tensors[gradient].name, tensor.name));
  }

  TensorId result(const char* field, const std::string& name) const {
    const auto found = tensors_.find(name);
    if (found == tensors_.end())
      refuse(header_line_, fmt::format("'{}' names '{}', which no line describes", field, name));
    return found->second;
  }

  void take_loss_as_f64() {
    Tensor& loss = graph_.tensors[graph_.loss];
    if (loss.kind != TensorKind::activation || loss.elements() != 1)
      refuse(lines_[graph_.loss],
             fmt::format("'{}' is the loss, but no activation of one element", loss.name));
    loss.type = DataType::f64;
    loss.shape = {};
  }
};

// Takes the first line off `text`, without its end.
std::string_view take_line(std::string_view& text) {
  const std::size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

constexpr std::string_view space = " \t\r\n";

}  // namespace

bool is_trace(std::string_view text) {
  const auto skip = [&] { text.remove_prefix(std::min(text.find_first_not_of(space), text.size())); };
  skip();
  if (!text.starts_with('{')) return false;
  text.remove_prefix(1);
  skip();
  return text.starts_with("\"stowage_trace\"");
}

Graph graph_from_trace(std::string_view text) {
  TraceReader reader;
  for (std::size_t number = 1; !text.empty(); ++number) {
    if (number > most_lines)
      throw InvalidInput(fmt::format(
          "trace line {}: there are more than {} lines; record one step, in fewer ops", number, most_lines));
    const std::string_view line = take_line(text);
    if (line.find_first_not_of(space) != std::string_view::npos) reader.read(number, line);
  }
  return reader.finish();
}

}  // namespace stowage
