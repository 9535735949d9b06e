#include "src/graph/update_ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>
#include <variant>

#include "src/graph/share_state.h"
#include "stowage/error.h"

namespace stowage {
namespace {

// Returns the rows of each slice of the parameter except the last; all rows if it is not cut. Every slice
// begins at a multiple of most_tensor_alignment. If moments have blocks, a slice begins with a block, and its
// scales at such a multiple too.
std::int64_t rows_of_slices(const Tensor& parameter, Bytes all_bytes, const AdamW& optimizer) {
  const ChunkGrid& grid = optimizer.grid;
  if (parameter.shape.empty()) return 1;
  const std::int64_t rows = parameter.shape.front();
  const auto slices =
      std::min(grid.most_slices, static_cast<std::int64_t>(parameter.bytes() / grid.slice_bytes));
  const bool is_large =
      static_cast<double>(parameter.bytes()) >= grid.least_share * static_cast<double>(all_bytes);
  if (!is_large || slices < std::max<std::int64_t>(grid.least_slices, 2)) return rows;
  const auto row_bytes = parameter.bytes() / static_cast<Bytes>(rows);
  const auto lines = [](Bytes of_row, Bytes unit) {
    return static_cast<std::int64_t>(unit / std::gcd(of_row, unit));
  };
  // Elements of a slice whose scales fill whole alignments; all factors are powers of two.
  constexpr Bytes block = moment_block * most_tensor_alignment / sizeof(float);
  const auto row_elements = static_cast<Bytes>(parameter.elements() / rows);
  const std::int64_t together = std::max(lines(row_bytes, most_tensor_alignment),
                                         optimizer.moments == Moments::f32 ? 1 : lines(row_elements, block));
  const std::int64_t of_each = (rows + slices - 1) / slices;
  return std::min(rows, (of_each + together - 1) / together * together);
}

class UpdatePhase {
 public:
  UpdatePhase(Graph& graph, const std::vector<FinalGradient>& gradients, const AdamW& optimizer)
      : graph_(graph),
        gradients_(gradients),
        optimizer_(optimizer),
        groups_(graph.gradient_groups),
        ranks_(graph.share.ranks) {}

  void run() {
    const std::vector<TensorId> parameters = trained_by_first_use(graph_);
    std::vector<Target> targets;
    for (const TensorId parameter : parameters) add_targets(parameter, targets);
    std::vector<TensorId> sums = add_square_sums(targets);
    if (ranks_ > 1) {
      sums = {gathered(norm_part(std::move(sums)), "norm.parts")};
      graph_.loss = loss_of_ranks();
    }
    graph_.clip = add_tensor({"clip", DataType::f64, {2}, TensorKind::activation, {}});
    Op clip = named("clip", "clip");
    clip.attributes = {{"clip", optimizer_.clip}};
    if (in_pieces()) clip.attributes["pieces"] = ranks_ > 1 ? ranks_ : groups_;
    clip.reads = sums;
    clip.writes = {graph_.clip};
    clip.cost.flops = static_cast<double>(sums.size());
    add_update_op(std::move(clip));
    for (const Target& target : targets) add_adamw(target);
  }

 private:
  // The operand of one update op: a parameter or a slice of it.
  struct Target {
    TensorId parameter = no_id, gradient = no_id;
    std::string suffix;      // ending of names: "" or ".slice3"
    std::int64_t count = 0;  // FinalGradient::count of this operand
  };

  Graph& graph_;
  const std::vector<FinalGradient>& gradients_;
  const AdamW& optimizer_;
  const std::int64_t groups_;  // gradient groups of this rank
  const std::int64_t ranks_;
  std::map<std::string, TensorId> states_;  // whole state tensors, by name
  std::int64_t rounding_key_ = std::int64_t{1} << 31;

  bool in_pieces() const { return groups_ * ranks_ > 1; }

  Bytes parameter_bytes() const {
    Bytes bytes = 0;
    for (const Tensor& tensor : graph_.tensors)
      if (tensor.kind == TensorKind::parameter) bytes += tensor.bytes();
    return bytes;
  }

  void add_targets(TensorId id, std::vector<Target>& targets) {
    const Tensor parameter = graph_.tensors[id];
    const TensorId final = gradients_[id].tensor;
    const Tensor& gradient = graph_.tensors[final];
    const bool alike = gradient.kind == TensorKind::gradient && gradient.shape == parameter.shape &&
                       gradient.type == parameter.type;
    const std::int64_t all = parameter.shape.empty() ? 1 : parameter.shape.front();
    const std::int64_t each =
        alike && !in_pieces() ? rows_of_slices(parameter, parameter_bytes(), optimizer_) : all;
    if (each == all) {
      targets.push_back({id, final, "", gradients_[id].count});
      return;
    }
    std::size_t number = 0;
    for (std::int64_t row = 0; row < all; row += each, ++number) {
      const std::string suffix = fmt::format(".slice{}", number);
      const std::int64_t rows = std::min(each, all - row);
      const TensorId own = slice(id, row, rows, suffix);
      targets.push_back({own, slice(final, row, rows, suffix), suffix, graph_.tensors[own].elements()});
    }
  }
  TensorId slice(TensorId whole, std::int64_t first_row, std::int64_t rows, const std::string& suffix) {
    const Tensor& of = graph_.tensors[whole];
    Tensor part{of.name + suffix, of.type, of.shape, TensorKind::slice, {}, whole, first_row};
    part.shape.front() = rows;
    return add_tensor(std::move(part));
  }

  TensorId add_tensor(Tensor tensor) {
    graph_.tensors.push_back(std::move(tensor));
    return static_cast<TensorId>(graph_.tensors.size() - 1);
  }

  static Op named(std::string name, const char* kernel) {
    Op op;
    op.name = std::move(name);
    op.kernel = kernel;
    return op;
  }

  void add_update_op(Op op) {
    op.phase = Phase::update;
    op.cost.bytes = operand_bytes(graph_, op);
    graph_.ops.push_back(std::move(op));
  }

  // Returns the sums in the order of `targets`.
  std::vector<TensorId> add_square_sums(const std::vector<Target>& targets) {
    std::vector<TensorId> sums;
    OpInsertion insertion(graph_);
    const std::vector<OpId> producers = producers_of(graph_);
    std::map<std::pair<std::uint32_t, DataType>, SmallGradients> small;
    for (const Target& target : targets) {
      const OpId producer = producers[graph_.whole_of(target.gradient)];
      const std::uint32_t unit = graph_.ops[producer].unit;
      sums.push_back(add_square_sum_tensor(target));
      if (is_small(target)) {
        small[{unit, graph_.tensors[target.gradient].type}].add(producer, target, sums.back());
      } else {
        insertion.behind(producer, square_sum(target, sums.back(), unit));
      }
    }
    for (const auto& [of, gradients] : small)
      insertion.behind(gradients.last, square_sums(gradients, of.first));
    insertion.apply(graph_);
    return sums;
  }

  // Gradients of one unit and type whose sums one op makes.
  struct SmallGradients {
    OpId last = 0;  // the op that completes the last of them
    std::vector<Target> targets;
    std::vector<TensorId> sums;

    void add(OpId producer, const Target& target, TensorId sum) {
      last = std::max(last, producer);
      targets.push_back(target);
      sums.push_back(sum);
    }
  };
  // A small gradient may wait for the others of its unit: of biases and gains. On several ranks, each sums
  // its own pieces.
  bool is_small(const Target& target) const {
    constexpr Bytes most = 64_KiB;
    const Tensor& gradient = graph_.tensors[target.gradient];
    return !in_pieces() && gradient.kind != TensorKind::slice && gradient.shape.size() < 2 &&
           gradient.bytes() <= most;
  }

  std::string square_sum_name(const Target& target) const {
    return name_of(target) + ".grad.square_sum" + target.suffix;
  }
  TensorId add_square_sum_tensor(const Target& target) {
    Tensor sums{square_sum_name(target), DataType::f64, {}, TensorKind::activation, {}};
    if (in_pieces()) sums.shape = {groups_};
    return add_tensor(std::move(sums));
  }
  Op square_sum(const Target& target, TensorId sum, std::uint32_t unit) {
    const TensorId gradient = target.gradient;
    Op op = named(square_sum_name(target), "square_sum");
    if (in_pieces()) {
      op.attributes = {{"pieces", groups_}, {"piece", piece_elements(gradient)}};
      if (target.count < graph_.tensors[gradient].elements()) op.attributes["count"] = target.count;
    }
    op.reads = {gradient};
    op.writes = {sum};
    add_cost_of_sums(op, unit);
    return op;
  }
  Op square_sums(const SmallGradients& gradients, std::uint32_t unit) {
    if (gradients.targets.size() == 1) return square_sum(gradients.targets[0], gradients.sums[0], unit);
    Op op = named(square_sum_name(gradients.targets[0]) + "s", "square_sums");
    for (const Target& target : gradients.targets) op.reads.push_back(target.gradient);
    op.writes = gradients.sums;
    add_cost_of_sums(op, unit);
    return op;
  }
  void add_cost_of_sums(Op& op, std::uint32_t unit) const {
    op.phase = Phase::backward;
    op.unit = unit;
    for (const TensorId gradient : op.reads)
      op.cost.flops += 2 * static_cast<double>(graph_.tensors[gradient].elements());
    op.cost.bytes = operand_bytes(graph_, op);
  }

  // Elements of a piece of a whole parameter or of a rank's share: the same either way.
  std::int64_t piece_elements(TensorId gradient) const {
    return share_of(graph_.tensors[gradient].elements(), graph_.gradient_groups, {}).piece;
  }

  // Appends an op at the end of backward, with one result in f64.
  TensorId last_backward(std::string name, const char* kernel, std::vector<TensorId> reads,
                         std::vector<std::int64_t> shape, Attributes attributes) {
    Op op = named(name, kernel);
    op.attributes = std::move(attributes);
    op.reads = std::move(reads);
    op.writes = {add_tensor({std::move(name), DataType::f64, std::move(shape), TensorKind::activation, {}})};
    op.phase = Phase::backward;
    op.unit = graph_.ops.back().unit;
    op.cost.bytes = operand_bytes(graph_, op);
    graph_.ops.push_back(std::move(op));
    return graph_.ops.back().writes[0];
  }
  // Adds up the sums. An op reads at most `most` sums; the first of them is the result of the op before it.
  TensorId norm_part(std::vector<TensorId> sums) {
    constexpr std::ptrdiff_t most = 128;
    const Attributes pieces = {{"pieces", groups_}};
    for (int number = 0; std::ssize(sums) > most; ++number) {
      const auto rest = sums.begin() + most;
      std::vector<TensorId> left = {last_backward(fmt::format("norm.part.{}", number), "norm_part",
                                                  {sums.begin(), rest}, {groups_}, pieces)};
      left.insert(left.end(), rest, sums.end());
      sums = std::move(left);
    }
    return last_backward("norm.part", "norm_part", std::move(sums), {}, pieces);
  }
  // Returns the gathered numbers, one from each rank.
  TensorId gathered(TensorId own, const char* name) {
    const TensorId all = last_backward(name, "gather", {own}, {ranks_}, {});
    graph_.ops.back().cost.peer_bytes =
        static_cast<double>(size_of(DataType::f64)) * static_cast<double>(ranks_ - 1);
    return all;
  }
  TensorId loss_of_ranks() {
    return last_backward("loss.of_ranks", "tree_sum", {gathered(graph_.loss, "loss.parts")}, {},
                         {{"rows", ranks_}});
  }

  const std::string& name_of(const Target& target) const {
    return graph_.tensors[graph_.whole_of(target.parameter)].name;
  }

  // Returns the parameter's state; for a slice, the same rows of the state.
  TensorId state(const Target& target, const char* suffix, DataType type) {
    const TensorId parameter = graph_.whole_of(target.parameter);
    const std::string name = graph_.tensors[parameter].name + suffix;
    const Tensor& rows = graph_.tensors[target.parameter];
    const std::int64_t first_row = rows.first_row, count = rows.shape.empty() ? 0 : rows.shape.front();
    TensorId& whole = states_[name];
    if (first_row == 0)
      whole = add_tensor({name, type, graph_.tensors[parameter].shape, TensorKind::optimizer_state, {}});
    return parameter == target.parameter ? whole : slice(whole, first_row, count, target.suffix);
  }

  // Returns the scales, one f32 for each block of the moments; for a slice, the scales of its blocks.
  TensorId scales(const Target& target, const char* suffix) {
    const Tensor rows = graph_.tensors[target.parameter];
    const Tensor& parameter = graph_.tensors[graph_.whole_of(target.parameter)];
    const std::string name = parameter.name + suffix;
    TensorId& whole = states_[name];
    if (rows.first_row == 0)
      whole = add_tensor(
          {name, DataType::f32, {moment_blocks(parameter.elements())}, TensorKind::optimizer_state, {}});
    if (rows.kind != TensorKind::slice) return whole;
    const std::int64_t first = rows.first_row * (rows.elements() / rows.shape.front()) / moment_block;
    return slice(whole, first, moment_blocks(rows.elements()), target.suffix);
  }

  DataType moments_of(const Tensor& parameter) const {
    if (parameter.type == DataType::f64) return DataType::f64;
    if (optimizer_.moments == Moments::f32 || parameter.shape.size() < 2) return DataType::f32;
    return optimizer_.moments == Moments::bf16 ? DataType::bf16 : DataType::u8;
  }

  // Names the random bits that round a moment: their keys follow dropout's keys, by parameter in order of
  // first use.
  void add_rounding_stream(const Target& target, Op& op) {
    const Tensor& rows = graph_.tensors[target.parameter];
    if (rows.first_row == 0) ++rounding_key_;
    op.attributes["key"] = rounding_key_;
    op.attributes["first_element"] =
        rows.initializer.first_element + rows.first_row * (rows.elements() / rows.shape.front());
  }

  void add_adamw(const Target& target) {
    const Tensor source = graph_.tensors[target.parameter];
    // True: the low part of its master weight is optimizer state.
    const bool split = size_of(source.type) == 2;
    const DataType moments = moments_of(source);
    const bool decays = optimizer_.decayed == DecayedParameters::all || source.shape.size() >= 2;
    Op op = named(name_of(target) + ".adamw" + target.suffix, "adamw");
    op.attributes = {{"beta1", optimizer_.beta1},
                     {"beta2", optimizer_.beta2},
                     {"epsilon", optimizer_.epsilon},
                     {"weight_decay", decays ? optimizer_.weight_decay : 0.0}};
    op.writes = {target.parameter, state(target, ".adam_m", moments), state(target, ".adam_v", moments)};
    op.reads = {target.parameter, target.gradient, op.writes[1], op.writes[2], graph_.clip};
    if (split) {
      op.writes.push_back(
          state(target, ".low", source.type == DataType::bf16 ? DataType::i16 : DataType::i32));
      op.reads.push_back(op.writes.back());
    }
    if (moments == DataType::u8) {
      for (const char* suffix : {".adam_m_scale", ".adam_v_scale"}) {
        op.writes.push_back(scales(target, suffix));
        op.reads.push_back(op.writes.back());
      }
    }
    if (moments == DataType::bf16) add_rounding_stream(target, op);
    op.cost.flops = 16 * static_cast<double>(source.elements());
    add_update_op(std::move(op));
  }
};

// Whether the op may clip; true also for a clip op without a stated limit.
bool may_clip(const Op& op) {
  const auto found = op.attributes.find("clip");
  const auto* limit = found == op.attributes.end() ? nullptr : std::get_if<double>(&found->second);
  return op.kernel != "clip" || limit == nullptr || *limit > 0;
}

}  // namespace

std::string_view to_string(DecayedParameters decayed) {
  return decayed == DecayedParameters::all ? "all" : "matrices";
}

double operand_bytes(const Graph& graph, const Op& op) {
  double bytes = 0;
  for (const TensorId tensor : op.reads) bytes += static_cast<double>(graph.tensors[tensor].bytes());
  for (const TensorId tensor : op.writes) bytes += static_cast<double>(graph.tensors[tensor].bytes());
  return bytes;
}

std::vector<OpId> producers_of(const Graph& graph) {
  std::vector<OpId> producers(graph.tensors.size(), no_id);
  for (OpId op = 0; op < graph.ops.size(); ++op)
    for (const TensorId id : graph.ops[op].writes) producers[id] = op;
  return producers;
}

std::vector<TensorId> parameters_by_first_use(const Graph& graph) {
  std::vector<TensorId> parameters;
  std::vector<bool> seen(graph.tensors.size());
  const auto visit = [&](TensorId id) {
    if (graph.tensors[id].kind != TensorKind::parameter || seen[id]) return;
    seen[id] = true;
    parameters.push_back(id);
  };
  for (const Op& op : graph.ops) std::for_each(op.reads.begin(), op.reads.end(), visit);
  for (TensorId id = 0; id < graph.tensors.size(); ++id) visit(id);
  return parameters;
}

std::vector<TensorId> trained_by_first_use(const Graph& graph) {
  std::vector<TensorId> parameters = parameters_by_first_use(graph);
  std::erase_if(parameters, [&](TensorId id) { return !graph.tensors[id].trained; });
  return parameters;
}

void append_update(Graph& graph, const std::vector<FinalGradient>& gradients, const AdamW& optimizer) {
  UpdatePhase(graph, gradients, optimizer).run();
}

std::string why_updates_wait(const Graph& graph) {
  for (const Op& op : graph.ops)
    if (std::find(op.writes.begin(), op.writes.end(), graph.clip) != op.writes.end() && may_clip(op))
      return "gradients are clipped by the norm of all of them, which is known behind backward: switch "
             "clipping off (AdamW::clip 0; trainers: --clip 0)";
  for (const Tensor& tensor : graph.tensors)
    if (tensor.kind == TensorKind::parameter && tensor.type == DataType::f16)
      return "in fp16 a step whose gradients overflow is left out, which is known behind backward: train in "
             "bf16 or f32 (--type)";
  return "";
}

void require_no_clipping(const Graph& graph) {
  const std::string reason = why_updates_wait(graph);
  if (!reason.empty()) throw InvalidInput("the optimizer cannot run in backward: " + reason);
}

}  // namespace stowage
