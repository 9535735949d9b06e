// check(): one pass over tensors, one over ops, one over aliases.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <unordered_set>

#include "src/base/printable.h"
#include "src/graph/codec_check.h"
#include "src/graph/shape.h"
#include "stowage/error.h"
#include "stowage/graph.h"

namespace stowage {
namespace {

// Planning time grows with the square of an op's values: this many take some seconds. Concatenations of real
// models join hundreds.
constexpr std::ptrdiff_t most_values_of_op = 1024;

class Checker {
 public:
  explicit Checker(const Graph& graph)
      : graph_(graph),
        producer_(graph.tensors.size(), no_id),
        last_reader_(graph.tensors.size(), no_id),
        rows_in_slices_(graph.tensors.size(), 0) {}

  void run() {
    check_tensors();
    check_slices();
    check_unit_names();
    for (OpId id = 0; id < graph_.ops.size(); ++id) check_op(id);
    check_producers();
    for (OpId id = 0; id < graph_.ops.size(); ++id) check_aliases(id);
    check_results();
    if (const std::string fault = fault_of_codes(graph_); !fault.empty()) fail("{}", fault);
  }

 private:
  const Graph& graph_;
  std::vector<OpId> producer_;
  std::vector<OpId> last_reader_;
  std::vector<std::int64_t> rows_in_slices_;  // by tensor
  std::unordered_set<std::string_view> op_names_;

  template <class Argument>
  static decltype(auto) shown(const Argument& argument) {
    if constexpr (std::is_same_v<Argument, std::string>)
      return printable(argument);
    else
      return (argument);
  }

  template <class... Arguments>
  [[noreturn]] static void fail(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    throw InvalidInput("graph: " + fmt::format(fmt::runtime(fmt::string_view(format)), shown(arguments)...) +
                       "; correct the graph, or build it anew with GraphBuilder");
  }

  static bool persistent(TensorKind kind) {
    return kind == TensorKind::parameter || kind == TensorKind::optimizer_state;
  }

  void check_tensors() {
    std::unordered_set<std::string_view> names;
    std::int64_t total = 0;
    for (const Tensor& tensor : graph_.tensors) {
      if (tensor.name.empty()) fail("a tensor has no name");
      if (!names.insert(tensor.name).second) fail("two tensors are named '{}'", tensor.name);
      auto bytes = checked_bytes(tensor.shape, tensor.type);
      if (!bytes) {
        fail("the shape {} of tensor '{}' has a dimension below 1 or overflows 63 bits of bytes",
             describe(tensor.shape), tensor.name);
      }
      if (__builtin_add_overflow(total, static_cast<std::int64_t>(*bytes), &total)) {
        fail("the sizes of all tensors up to '{}' overflow 63 bits of bytes", tensor.name);
      }
      if (!std::isfinite(tensor.initializer.mean) || !std::isfinite(tensor.initializer.standard_deviation)) {
        fail("the initializer of tensor '{}' is not finite", tensor.name);
      }
      if (!tensor.trained && tensor.kind != TensorKind::parameter)
        fail("'{}' is not trained, but no parameter either", tensor.name);
      if (tensor.initializer.first_element < 0 || tensor.initializer.first_element % 2 != 0)
        fail("the draws of tensor '{}' begin at an element that is negative or odd", tensor.name);
    }
  }

  void check_slices() {
    for (TensorId id = 0; id < graph_.tensors.size(); ++id) {
      const Tensor& tensor = graph_.tensors[id];
      if (tensor.kind == TensorKind::slice)
        check_slice(id);
      else if (tensor.whole != no_id || tensor.first_row != 0)
        fail("'{}' is no slice, but has rows of another tensor", tensor.name);
    }
    for (TensorId id = 0; id < graph_.tensors.size(); ++id)
      if (is_cut(id) && rows_in_slices_[id] != graph_.tensors[id].shape.front())
        fail("the slices of '{}' are not all of its rows", graph_.tensors[id].name);
  }
  bool is_cut(TensorId id) const { return rows_in_slices_[id] > 0; }

  void check_slice(TensorId id) {
    const Tensor& slice = graph_.tensors[id];
    if (slice.whole >= id) fail("the slice '{}' does not stand behind the tensor that it is of", slice.name);
    const Tensor& whole = graph_.tensors[slice.whole];
    if (!persistent(whole.kind) && whole.kind != TensorKind::gradient)
      fail("the slice '{}' is of the {} '{}', which cannot be cut", slice.name, to_string(whole.kind),
           whole.name);
    const bool has_rows = !slice.shape.empty() && slice.type == whole.type &&
                          slice.shape.size() == whole.shape.size() &&
                          std::equal(slice.shape.begin() + 1, slice.shape.end(), whole.shape.begin() + 1);
    std::int64_t& rows = rows_in_slices_[slice.whole];
    if (!has_rows || slice.first_row != rows || slice.shape.front() > whole.shape.front() - rows)
      fail("the slice '{}' is not the next rows of '{}'", slice.name, whole.name);
    if (graph_.offset_in_whole(id) % tensor_alignment(slice.bytes()) != 0)
      fail("the slice '{}' begins in the midst of an aligned range of '{}'", slice.name, whole.name);
    if (!whole.trained) fail("the slice '{}' is of '{}', which is not trained", slice.name, whole.name);
    if (slice.shape == whole.shape) fail("the slice '{}' is all of '{}'", slice.name, whole.name);
    rows += slice.shape.front();
  }

  void check_unit_names() {
    std::unordered_set<std::string_view> names;
    for (const std::string& name : graph_.unit_names) {
      if (!names.insert(name).second) fail("two units are named '{}'", name);
    }
    const std::size_t parts = graph_.micro_batches;
    if (parts == 0 || graph_.unit_names.size() % parts != 0) {
      fail("{} units are no half-blocks of {} micro-batches each", graph_.unit_names.size(), parts);
    }
    if (!are_gradient_groups(graph_.gradient_groups, graph_.micro_batches)) {
      fail("{} gradient groups are no power of two that divides {} micro-batches", graph_.gradient_groups,
           graph_.micro_batches);
    }
    check_ranges(graph_.unit_names.size() / parts);
    if (graph_.samples < 0 || graph_.tokens < 0) fail("a step has a negative number of samples or tokens");
    if (graph_.share.rank >= graph_.share.ranks || !std::has_single_bit(graph_.share.ranks))
      fail("the graph is rank {} of {}, which count from 0 and are a power of two", graph_.share.rank,
           graph_.share.ranks);
  }

  void check_ranges(std::size_t half_blocks) {
    std::uint32_t last = 0;
    for (const std::uint32_t begin : graph_.range_begins) {
      if (graph_.micro_batches == 1 || begin <= last || begin >= half_blocks)
        fail(
            "a range begins at half-block {} of {}, behind {}, with {} micro-batches; give rising ones, and "
            "none for one micro-batch",
            begin, half_blocks, last, graph_.micro_batches);
      last = begin;
    }
  }

  void check_op(OpId id) {
    const Op& op = graph_.ops[id];
    if (op.name.empty()) fail("op {} has no name", id);
    if (!op_names_.insert(op.name).second) fail("two ops are named '{}'", op.name);
    if (op.kernel.empty()) fail("op '{}' has no kernel", op.name);
    if (!op.replayable && op.phase != Phase::forward)
      fail("op '{}' is not replayable, but of {}, of which nothing is computed again", op.name,
           to_string(op.phase));
    check_order(id);
    check_numbers(op);
    for (TensorId tensor : op.reads) check_read(id, tensor);
    for (TensorId tensor : op.writes) check_write(id, tensor);
    if (op.phase != Phase::update) check_values(op);
  }

  // Limits the values that are planned one by one. Parameters and gradients share buckets and do not count.
  void check_values(const Op& op) const {
    const auto is_apart = [&](TensorId tensor) {
      const TensorKind kind = graph_.kind_of(tensor);
      return !persistent(kind) && kind != TensorKind::gradient;
    };
    const auto values = std::count_if(op.reads.begin(), op.reads.end(), is_apart) +
                        std::count_if(op.writes.begin(), op.writes.end(), is_apart);
    if (values > most_values_of_op)
      fail(
          "op '{}' reads and writes {} inputs and activations, and planning takes at most {} of one op: join "
          "them into fewer tensors, or cut the op",
          op.name, values, most_values_of_op);
  }

  void check_order(OpId id) {
    const Op& op = graph_.ops[id];
    const Op* before = id == 0 ? nullptr : &graph_.ops[id - 1];
    if (before != nullptr && op.phase < before->phase) {
      fail("op '{}' of phase {} stands behind '{}' of phase {}", op.name, to_string(op.phase), before->name,
           to_string(before->phase));
    }
    if (op.phase == Phase::update) {
      if (op.unit != no_id) fail("update op '{}' has a unit", op.name);
      return;
    }
    if (op.unit >= graph_.unit_names.size()) fail("the unit of op '{}' is out of range", op.name);
    bool first_of_phase = before == nullptr || before->phase != op.phase;
    if (op.phase == Phase::forward) {
      std::uint32_t last = first_of_phase ? 0 : before->unit;
      if (op.unit < last || op.unit > last + (first_of_phase ? 0U : 1U)) {
        fail("units are not consecutive: forward op '{}' has unit {} after unit {}", op.name, op.unit, last);
      }
    } else if (!first_of_phase && comes_before(op.unit, before->unit)) {
      fail("units are not consecutive: backward op '{}' has unit {} after unit {}", op.name, op.unit,
           before->unit);
    }
  }

  // Whether a unit comes before another in backward.
  bool comes_before(std::uint32_t unit, std::uint32_t other) const {
    const std::uint32_t block = graph_.half_block_of(unit);
    const std::uint32_t other_block = graph_.half_block_of(other);
    return block > other_block || (block == other_block && unit < other);
  }

  static void check_numbers(const Op& op) {
    const auto sound = [](double value) { return value >= 0 && std::isfinite(value); };
    if (!sound(op.cost.flops) || !sound(op.cost.bytes) || !sound(op.cost.seconds.value_or(0)) ||
        !sound(op.cost.peer_bytes)) {
      fail("the cost of op '{}' is negative or not finite", op.name);
    }
    for (const auto& [name, value] : op.attributes) {
      const double* number = std::get_if<double>(&value);
      if (number != nullptr && !std::isfinite(*number)) {
        fail("attribute '{}' of op '{}' is not finite", name, op.name);
      }
    }
  }

  void check_read(OpId id, TensorId tensor) {
    const Op& op = graph_.ops[id];
    if (tensor >= graph_.tensors.size())
      fail("op '{}' reads tensor {}, which does not exist", op.name, tensor);
    const Tensor& read = graph_.tensors[tensor];
    if (read.kind == TensorKind::workspace) fail("op '{}' reads the workspace '{}'", op.name, read.name);
    const TensorKind kind = graph_.kind_of(tensor);
    if (kind == TensorKind::optimizer_state && op.phase != Phase::update) {
      fail("op '{}' is no update but reads the optimizer state '{}'", op.name, read.name);
    }
    if (kind == TensorKind::parameter && graph_.is_slice(tensor) && op.phase != Phase::update)
      fail("op '{}' is no update but reads the slice '{}'", op.name, read.name);
    if (is_cut(tensor) && persistent(kind) &&
        (kind == TensorKind::optimizer_state || op.phase == Phase::update))
      fail("op '{}' reads '{}' as a whole, and updates go by its slices", op.name, read.name);
    if (!persistent(kind) && kind != TensorKind::input && producer_[graph_.whole_of(tensor)] == no_id) {
      fail("op '{}' reads '{}' before it is written", op.name, read.name);
    }
    last_reader_[tensor] = id;
  }

  void check_write(OpId id, TensorId tensor) {
    const Op& op = graph_.ops[id];
    if (tensor >= graph_.tensors.size())
      fail("op '{}' writes tensor {}, which does not exist", op.name, tensor);
    const Tensor& written = graph_.tensors[tensor];
    if (written.kind == TensorKind::input) fail("op '{}' writes the input '{}'", op.name, written.name);
    const TensorKind kind = graph_.kind_of(tensor);
    if (persistent(kind) && op.phase != Phase::update) {
      fail("op '{}' is no update but writes the {} '{}'", op.name, to_string(kind), written.name);
    }
    if (!written.trained) fail("op '{}' writes '{}', which is not trained", op.name, written.name);
    if (graph_.is_slice(tensor) && kind == TensorKind::gradient)
      fail("op '{}' writes the slice '{}' of a gradient, which is written as a whole", op.name, written.name);
    if (is_cut(tensor) && persistent(kind))
      fail("op '{}' writes '{}' as a whole, and updates go by its slices", op.name, written.name);
    if (producer_[tensor] != no_id) {
      fail("'{}' is written twice, by op '{}' and by op '{}'", written.name,
           graph_.ops[producer_[tensor]].name, op.name);
    }
    producer_[tensor] = id;
  }

  void check_producers() {
    for (TensorId id = 0; id < graph_.tensors.size(); ++id) {
      const Tensor& tensor = graph_.tensors[id];
      if (producer_[id] == no_id && !persistent(tensor.kind) && tensor.kind != TensorKind::input &&
          tensor.kind != TensorKind::slice) {
        fail("no op writes the {} '{}'", to_string(tensor.kind), tensor.name);
      }
    }
  }

  void check_aliases(OpId id) {
    const Op& op = graph_.ops[id];
    std::vector<bool> write_used(op.writes.size());
    std::vector<bool> read_used(op.reads.size());
    for (const Alias& alias : op.may_alias) {
      if (alias.write >= op.writes.size() || alias.read >= op.reads.size()) {
        fail("an alias of op '{}' names an operand that does not exist", op.name);
      }
      if (write_used[alias.write] || read_used[alias.read]) {
        fail("two aliases of op '{}' name the same operand", op.name);
      }
      write_used[alias.write] = read_used[alias.read] = true;
      check_alias(id, op.writes[alias.write], op.reads[alias.read]);
    }
  }

  void check_alias(OpId id, TensorId write, TensorId read) {
    const Op& op = graph_.ops[id];
    const Tensor& to = graph_.tensors[write];
    const Tensor& from = graph_.tensors[read];
    if (write == read) fail("op '{}' aliases '{}' with itself", op.name, to.name);
    if (to.bytes() != from.bytes()) {
      fail("op '{}' aliases '{}' with '{}', whose size differs", op.name, to.name, from.name);
    }
    if (persistent(from.kind) || persistent(to.kind) || from.kind == TensorKind::input || is_cut(read) ||
        graph_.is_slice(read) || graph_.is_slice(write)) {
      fail("op '{}' aliases '{}' with '{}', but only values of one step may share bytes", op.name, to.name,
           from.name);
    }
    if (last_reader_[read] != id || std::count(op.reads.begin(), op.reads.end(), read) != 1) {
      fail("op '{}' may overwrite '{}' but is not its last reader: op '{}' reads it too", op.name, from.name,
           graph_.ops[last_reader_[read]].name);
    }
  }

  void check_results() {
    if (graph_.loss != no_id) {
      check_result("loss", graph_.loss, {});
      if (phase_of(producer_[graph_.loss]) == Phase::update) {
        fail("the loss '{}' is written by an update op", graph_.tensors[graph_.loss].name);
      }
    }
    if (graph_.clip == no_id) return;
    check_result("clip", graph_.clip, {2});
    if (phase_of(producer_[graph_.clip]) != Phase::update) {
      fail("the clip '{}' is not written by an update op", graph_.tensors[graph_.clip].name);
    }
  }

  Phase phase_of(OpId op) const { return graph_.ops[op].phase; }

  void check_result(std::string_view what, TensorId id, const std::vector<std::int64_t>& shape) {
    if (id >= graph_.tensors.size()) fail("the {} tensor does not exist", what);
    const Tensor& tensor = graph_.tensors[id];
    if (tensor.kind == TensorKind::slice) fail("the {} '{}' is a slice", what, tensor.name);
    if (tensor.type != DataType::f64 || tensor.shape != shape) {
      fail("the {} '{}' is {} {}, not f64 {}", what, tensor.name, to_string(tensor.type),
           describe(tensor.shape), describe(shape));
    }
    if (producer_[id] == no_id) fail("no op writes the {} '{}'", what, tensor.name);
  }
};

}  // namespace

void check(const Graph& graph) { Checker{graph}.run(); }

}  // namespace stowage
