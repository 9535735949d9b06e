// Traces: every line is judged where it is read, against the lines above it; check() judges the whole.
#include "stowage/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_map>

#include "src/base/printable.h"
#include "src/graph/trace_tensors.h"
#include "src/graph/update_ops.h"
#include "stowage/codec.h"
#include "stowage/error.h"

namespace stowage {
namespace {

constexpr std::size_t most_lines = std::size_t{1} << 24;
constexpr std::size_t most_characters = std::size_t{1} << 20;  // limit of a line
constexpr double most_work = 1e24;                             // limit of one op's flops, and of its bytes

class TraceReader {
 public:
  void read(std::size_t number, std::string_view text) {
    if (text.size() > most_characters)
      refuse_trace_line(number, fmt::format("has more than {} characters", most_characters));
    const JsonSource source = source_of_trace_line(number);
    const nlohmann::json json = parse_json(text, source);
    const JsonField line(json, source);
    number_ = number;
    if (!header_) {
      header_ = read_trace_header(line);
      header_line_ = number;
      tensors_.emplace(graph_, header_->version, header_->optimizer.has_value());
      graph_.samples = header_->samples;
      graph_.tokens = header_->tokens;
    } else if (line.has("tensor")) {
      tensors_->read(number, line);
    } else if (line.has("op")) {
      read_op(line);
    } else {
      line.fail("an object with 'tensor' or 'op'");
    }
  }

  Graph finish() {
    if (!header_) refuse_trace_line(1, "there is no header");
    tensors_->require_complete();
    graph_.loss = result("loss", header_->loss);
    take_loss_as_f64();
    if (header_->optimizer) {
      std::vector<TensorId> finals = tensors_->gradients();
      if (header_->version >= typed_trace_version) take_masters(graph_, finals);
      std::vector<FinalGradient> gradients;
      for (const TensorId id : finals)
        gradients.push_back({id, id == no_id ? 0 : graph_.tensors[id].elements()});
      append_update(graph_, gradients, *header_->optimizer);
    } else {
      graph_.clip = result("clip", header_->clip);
    }
    set_code_bits();
    try {
      check(graph_);
    } catch (const InvalidInput& error) {
      throw InvalidInput(fmt::format("trace: {}; docs/trace.md says what a trace may hold", error.what()));
    }
    return std::move(graph_);
  }

 private:
  void read_op(const JsonField& line) {
    const bool typed = header_->version >= typed_trace_version;
    line.require_members({"op", "phase", "unit", "kernel", "reads", "writes", "may_alias", "seconds", "flops",
                          "bytes", "workspace", typed ? "replayable" : "op", typed ? "type" : "op"});
    if (graph_.ops.size() == most_items) line.refuse(fmt::format("is op {}", most_items + 1));
    Op op;
    op.name = trace_name(line.member("op"));
    if (!ops_.emplace(op.name, static_cast<OpId>(graph_.ops.size())).second)
      line.member("op").refuse(fmt::format("names '{}', which is an op above already", printable(op.name)));
    op.kernel = line.has("kernel") ? trace_name(line.member("kernel")) : "traced";
    read_phase(line, op);
    read_unit(line, op);
    read_operands(line, op);
    if (const auto aliases = line.optional_member("may_alias")) read_aliases(*aliases, op);
    read_cost(line, op);
    read_replayable(line, op);
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
    const std::string name = trace_name(field);
    const auto found = units_.find(name);
    if (phase == Phase::forward) {
      if (found == units_.end()) return add_unit(name);
      if (found->second != unit_)
        field.refuse(
            fmt::format("is '{}' again: forward ops of one unit must follow one another", printable(name)));
      return;
    }
    if (found == units_.end())
      field.refuse(fmt::format("names '{}', which has no forward op", printable(name)));
    if (last_phase() == Phase::backward && found->second > unit_)
      field.refuse(fmt::format("is '{}' behind '{}': backward must come unit by unit in the opposite order",
                               printable(name), printable(graph_.unit_names[unit_])));
    unit_ = found->second;
  }

  void read_operands(const JsonField& line, Op& op) {
    op.reads = line.member("reads").list(most_operands,
                                         [&](const JsonField& item) { return tensors_->read_by(op, item); });
    op.writes = line.member("writes").list(
        most_operands, [&](const JsonField& item) { return tensors_->written_by(op, item); });
    const auto workspace = line.optional_member("workspace");
    if (!workspace) return;
    constexpr Bytes word = 4;
    const auto words = static_cast<std::int64_t>((trace_bytes(*workspace) + word - 1) / word);
    const TensorId id = tensors_->add(
        number_, *workspace, {op.name + ".workspace", DataType::i32, {words}, TensorKind::workspace, {}});
    tensors_->set_producer(id, static_cast<OpId>(graph_.ops.size()));
    op.writes.push_back(id);
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
      const TensorId written = tensors_->known(names[0]);
      const TensorId read = tensors_->known(names[1]);
      if (graph_.tensors[written].bytes() != graph_.tensors[read].bytes())
        pair.fail("a pair of tensors of the same size");
      return Alias{place(names[0], op.writes, written), place(names[1], op.reads, read)};
    });
  }

  static void read_replayable(const JsonField& line, Op& op) {
    const auto field = line.optional_member("replayable");
    if (!field) return;
    op.replayable = field->boolean();
    if (!op.replayable && op.phase != Phase::forward)
      field->refuse(
          fmt::format("is false of an op of {}, of which nothing is computed again", to_string(op.phase)));
  }

  void read_cost(const JsonField& line, Op& op) const {
    if (const auto type = line.optional_member("type"))
      op.cost.type = type->one_of(std::array{DataType::f32, DataType::f64, DataType::bf16, DataType::f16});
    if (const auto flops = line.optional_member("flops")) op.cost.flops = number_up_to(*flops, most_work);
    if (const auto bytes = line.optional_member("bytes")) op.cost.bytes = number_up_to(*bytes, most_work);
    if (const auto seconds = line.optional_member("seconds"))
      op.cost.seconds = number_up_to(*seconds, most_trace_seconds);
    if (op.cost.bytes == 0) op.cost.bytes = operand_bytes(graph_, op);
  }

  // Ops of a trace have no attributes: sizes say in how many bits codes are.
  void set_code_bits() {
    for (Op& op : graph_.ops) {
      if (op.kernel == "encode" && op.reads.size() == 1 && op.writes.size() == 1)
        set_bits(op, op.reads.front(), op.writes.front());
      if (op.kernel == "decode" && op.reads.size() == 1 && op.writes.size() == 1)
        set_bits(op, op.writes.front(), op.reads.front());
    }
  }
  void set_bits(Op& op, TensorId values, TensorId codes) const {
    const std::int64_t elements = graph_.tensor(values).elements();
    const bool has_eight = elements <= most_coded_elements &&
                           graph_.tensor(codes).bytes() == coded_bytes(elements, CodeBits::eight);
    op.attributes["bits"] = std::int64_t{has_eight ? 8 : 4};
  }

  TensorId result(const char* field, const std::string& name) const {
    const auto found = tensors_->find(name);
    if (!found)
      refuse_trace_line(header_line_,
                        fmt::format("'{}' names '{}', which no line describes", field, printable(name)));
    return *found;
  }

  void take_loss_as_f64() {
    Tensor& loss = graph_.tensors[graph_.loss];
    if (loss.kind != TensorKind::activation || loss.elements() != 1)
      refuse_trace_line(
          tensors_->line_of(graph_.loss),
          fmt::format("'{}' is the loss, but no activation of one element", printable(loss.name)));
    loss.type = DataType::f64;
    loss.shape = {};
  }

  std::size_t number_ = 0;  // number of the line that is read
  std::optional<TraceHeader> header_;
  std::size_t header_line_ = 0;
  Graph graph_;
  std::optional<TraceTensors> tensors_;  // set once the header is read
  std::unordered_map<std::string, OpId> ops_;
  std::unordered_map<std::string, std::uint32_t> units_;
  std::uint32_t unit_ = no_id;  // unit of the previous op
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
  constexpr std::string_view utf8_mark = "\xef\xbb\xbf";
  if (text.starts_with(utf8_mark)) text.remove_prefix(utf8_mark.size());
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
