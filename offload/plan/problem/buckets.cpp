#include "offload/plan/problem/buckets.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "stowage/error.h"

namespace stowage {
namespace {

constexpr Bytes tiny_tensor_bytes = 16_KiB;

Bytes largest_footprint(const Graph& graph) {
  Bytes largest = 0;
  for (const Op& op : graph.ops) {
    if (op.phase == Phase::update) continue;
    Bytes sum = 0;
    for (TensorId id : op.reads) sum += graph.tensor(id).bytes();
    for (TensorId id : op.writes) sum += graph.tensor(id).bytes();
    largest = std::max(largest, sum);
  }
  return largest;
}

struct ParameterUse {
  TensorId parameter = no_id;
  std::uint32_t unit = no_id;  // unit of its first use
  TensorId gradient = no_id;
  // State tensors by slice; a parameter that is not cut has one entry.
  std::vector<std::vector<TensorId>> state;
  bool trained = true;
  bool is_cut() const { return state.size() > 1; }
};

[[noreturn]] void refuse_parameter(const Graph& graph, TensorId id, const char* what) {
  throw InvalidInput("cannot plan: " + std::string(what) + " parameter '" + graph.tensor(id).name +
                     "'; finish the graph with an optimizer");
}

// Returns, by tensor, a slice's number within its whole tensor; else 0.
std::vector<std::uint32_t> slice_numbers(const Graph& graph) {
  std::vector<std::uint32_t> numbers(graph.tensors.size(), 0);
  for (const std::vector<TensorId>& of : graph.slices())
    for (std::uint32_t i = 0; i < of.size(); ++i) numbers[of[i]] = i;
  return numbers;
}

// Records the gradient and the optimizer state that an update op applies to the parameter or to one
// slice of it.
void add_update(const Graph& graph, const Op& op, TensorId written,
                const std::vector<std::uint32_t>& slice_number, ParameterUse& use) {
  const std::uint32_t slice = slice_number[written];
  use.state.resize(std::max<std::size_t>(use.state.size(), slice + 1));
  for (TensorId id : op.reads) {
    if (graph.kind_of(id) == TensorKind::gradient) {
      if (graph.is_slice(id) != graph.is_slice(written) || slice_number[id] != slice)
        refuse_parameter(graph, use.parameter, "another slice's gradient is applied to a slice of");
      use.gradient = graph.whole_of(id);
    }
    if (graph.kind_of(id) == TensorKind::optimizer_state) use.state[slice].push_back(id);
  }
}

std::vector<ParameterUse> parameters_in_use_order(const Graph& graph,
                                                  const std::vector<std::uint32_t>& slice_number) {
  std::vector<ParameterUse> result;
  std::vector<std::uint32_t> index(graph.tensors.size(), no_id);
  for (const Op& op : graph.ops)
    for (TensorId id : op.reads)
      if (graph.tensor(id).kind == TensorKind::parameter && index[id] == no_id) {
        index[id] = static_cast<std::uint32_t>(result.size());
        result.push_back({id, op.unit, no_id, {}, graph.tensor(id).trained});
      }
  std::vector<std::uint8_t> updated(graph.tensors.size(), 0);
  for (const Op& op : graph.ops) {
    if (op.phase != Phase::update) continue;
    for (TensorId written : op.writes) {
      if (graph.kind_of(written) != TensorKind::parameter) continue;
      const TensorId parameter = graph.whole_of(written);
      if (index[parameter] == no_id) refuse_parameter(graph, parameter, "no op reads");
      add_update(graph, op, written, slice_number, result[index[parameter]]);
      updated[written] = 1;
    }
  }
  for (TensorId id = 0; id < graph.tensors.size(); ++id)
    if (graph.is_slice(id) && graph.kind_of(id) == TensorKind::parameter && !updated[id])
      refuse_parameter(graph, graph.whole_of(id), "no update op applies a gradient to all slices of");
  for (const ParameterUse& use : result)
    if (use.trained && use.gradient == no_id)
      refuse_parameter(graph, use.parameter, "no update op applies a gradient to");
  for (TensorId id = 0; id < graph.tensors.size(); ++id)
    if (graph.tensor(id).kind == TensorKind::parameter && index[id] == no_id)
      refuse_parameter(graph, id, "no op reads");
  return result;
}

class LayoutBuilder {
 public:
  LayoutBuilder(const Graph& graph, const std::vector<TensorId>& groups) : graph_(graph) {
    layout_.bucket_of.assign(graph.tensors.size(), no_id);
    layout_.slice_number = slice_numbers(graph);
    members_.resize(graph.tensors.size());
    for (TensorId id = 0; id < graph.tensors.size(); ++id) members_[groups[id]].push_back(id);
    groups_ = &groups;
  }

  // Makes one bucket of those tensors that have no bucket yet. Returns no_id if all have one.
  BucketId together(const std::string& name, BucketRole role, const std::vector<TensorId>& tensors) {
    BucketId bucket = no_id;
    for (TensorId id : tensors) {
      if (layout_.bucket_of[id] != no_id) continue;
      if (bucket == no_id) bucket = open(name, graph_.kind_of(id), role);
      append(bucket, id);
    }
    return bucket;
  }

  BucketId open(std::string name, TensorKind kind, BucketRole role) {
    layout_.buckets.push_back({std::move(name), kind, Residency::transient, {}, 0, {}});
    layout_.roles.push_back(role);
    layout_.parameters_of.push_back(no_id);
    layout_.slices.emplace_back();
    return static_cast<BucketId>(layout_.buckets.size() - 1);
  }
  // Appends the tensor and all tensors that share its bytes.
  void append(BucketId id, TensorId tensor) {
    if (layout_.bucket_of[tensor] != no_id) return;
    Bucket& bucket = layout_.buckets[id];
    Bytes offset = align_up(bucket.bytes, tensor_alignment(graph_.tensor(tensor).bytes()));
    for (TensorId member : members_[(*groups_)[tensor]]) {
      const bool is_part = graph_.is_slice(member) && graph_.kind_of(member) != TensorKind::optimizer_state;
      const Bytes begin = offset + (is_part ? graph_.offset_in_whole(member) : 0);
      const ByteRange range{begin, begin + graph_.tensor(member).bytes()};
      if (is_part) layout_.slices[id].push_back(range);
      layout_.bucket_of[member] = id;
      bucket.tensors.push_back({member, range.begin});
      bucket.bytes = std::max(bucket.bytes, range.end);
    }
  }
  void belongs(BucketId bucket, BucketId parameters) {
    if (bucket != no_id) layout_.parameters_of[bucket] = parameters;
  }
  void single(TensorId tensor, BucketRole role) {
    if (layout_.bucket_of[tensor] != no_id) return;
    append(open(graph_.tensor(tensor).name, graph_.kind_of(tensor), role), tensor);
  }
  bool placed(TensorId tensor) const { return layout_.bucket_of[tensor] != no_id; }
  BucketLayout& layout() { return layout_; }

 private:
  const Graph& graph_;
  const std::vector<TensorId>* groups_ = nullptr;
  std::vector<std::vector<TensorId>> members_;
  BucketLayout layout_;
};

// Splits parameters into runs; each becomes one bucket. Runs of tiny parameters come first. Parameters that
// are trained share no run with others.
std::vector<std::vector<std::size_t>> cut(const Graph& graph, const std::vector<ParameterUse>& uses,
                                          Bytes target) {
  std::vector<std::vector<std::size_t>> runs;
  std::vector<std::size_t> by_size;
  for (std::size_t i = 0; i < uses.size(); ++i)
    if (!uses[i].is_cut() && graph.tensor(uses[i].parameter).bytes() <= tiny_tensor_bytes)
      by_size.push_back(i);
  std::stable_sort(by_size.begin(), by_size.end(), [&](std::size_t a, std::size_t b) {
    return graph.tensor(uses[a].parameter).bytes() < graph.tensor(uses[b].parameter).bytes();
  });
  Bytes limit = largest_footprint(graph) / 64;
  Bytes sum = 0;
  std::vector<std::uint8_t> tiny(uses.size(), 0);
  for (std::size_t i : by_size) {
    sum += align_up(graph.tensor(uses[i].parameter).bytes(), most_tensor_alignment);
    if (sum > limit) break;
    tiny[i] = 1;
  }
  for (const bool trained : {true, false}) {
    std::vector<std::size_t> shared;
    for (std::size_t i = 0; i < uses.size(); ++i)
      if (tiny[i] && uses[i].trained == trained) shared.push_back(i);
    if (shared.size() > 1)
      runs.push_back(shared);
    else
      for (const std::size_t i : shared) tiny[i] = 0;
  }

  std::vector<std::size_t> run;
  Bytes bytes = 0;
  auto close = [&] {
    if (!run.empty()) runs.push_back(std::exchange(run, {}));
    bytes = 0;
  };
  for (std::size_t i = 0; i < uses.size(); ++i) {
    if (tiny[i]) continue;
    const bool new_unit = !run.empty() && uses[run.back()].unit != uses[i].unit;
    const bool other_kind = !run.empty() && uses[run.back()].trained != uses[i].trained;
    if ((new_unit && bytes >= target / 2) || other_kind || uses[i].is_cut()) close();
    run.push_back(i);
    bytes += graph.tensor(uses[i].parameter).bytes();
    if (bytes >= target || uses[i].is_cut()) close();
  }
  close();
  return runs;
}

std::string run_name(const Graph& graph, const std::vector<ParameterUse>& uses,
                     const std::vector<std::size_t>& run) {
  std::string name = graph.tensor(uses[run.front()].parameter).name;
  if (run.size() > 1) name += " (+" + std::to_string(run.size() - 1) + ")";
  return name;
}

// Adds the buckets of optimizer state of a run: one bucket, or one for each slice if the run is a parameter
// that is cut.
void add_state(LayoutBuilder& builder, BucketId parameters, const std::string& name,
               const std::vector<ParameterUse>& uses, const std::vector<std::size_t>& run) {
  std::vector<std::vector<TensorId>> state(uses[run.front()].is_cut() ? uses[run.front()].state.size() : 1);
  for (std::size_t i : run)
    for (std::size_t slice = 0; slice < uses[i].state.size(); ++slice)
      state[slice].insert(state[slice].end(), uses[i].state[slice].begin(), uses[i].state[slice].end());
  for (std::size_t slice = 0; slice < state.size(); ++slice) {
    std::string bucket = name + ".adam";
    if (state.size() > 1) bucket.append(".slice").append(std::to_string(slice));
    builder.belongs(builder.together(bucket, BucketRole::optimizer_state, state[slice]), parameters);
  }
}

void list_operands(const Graph& graph, BucketLayout& layout) {
  layout.first_operand.assign(1, 0);
  std::vector<std::size_t> newest(layout.buckets.size(), 0);  // by bucket: 1 + its newest operand; 0: none
  for (const Op& op : graph.ops) {
    const auto add = [&, from = layout.operands.size()](TensorId tensor, bool writes) {
      const BucketId bucket = layout.bucket_of[tensor];
      if (newest[bucket] > from) {
        BucketOperand& operand = layout.operands[newest[bucket] - 1];
        (writes ? operand.writes : operand.reads) = true;
      } else {
        layout.operands.push_back({bucket, !writes, writes});
        newest[bucket] = layout.operands.size();
      }
    };
    for (TensorId id : op.reads) add(id, false);
    for (TensorId id : op.writes) add(id, true);
    layout.first_operand.push_back(layout.operands.size());
  }
}

}  // namespace

Bytes efficient_bucket_bytes(const Machine& machine) {
  auto knee = [](const Link& link) { return 19.0 * link.latency_seconds * link.bytes_per_second; };
  double bytes = std::max(knee(machine.h2d), knee(machine.d2h));
  return static_cast<Bytes>(std::clamp(std::ceil(bytes), 65536.0, 1073741824.0));
}

BucketLayout make_buckets(const Graph& graph, const std::vector<TensorId>& groups,
                          const BucketOptions& options) {
  const bool is_stage = std::any_of(graph.ops.begin(), graph.ops.end(), is_between_stages);
  if (graph.clip == no_id || (graph.loss == no_id && !is_stage))
    throw InvalidInput("cannot plan a graph without a loss and an update phase; use GraphBuilder::finish");
  LayoutBuilder builder(graph, groups);
  std::vector<ParameterUse> uses = parameters_in_use_order(graph, builder.layout().slice_number);
  for (const auto& run : cut(graph, uses, options.target_bytes)) {
    std::string name = run_name(graph, uses, run);
    std::vector<TensorId> parameters, gradients;
    for (std::size_t i : run) {
      parameters.push_back(uses[i].parameter);
      if (uses[i].trained) gradients.push_back(uses[i].gradient);
    }
    const BucketId bucket = builder.together(name, BucketRole::parameter, parameters);
    builder.layout().parameters.push_back(bucket);
    add_state(builder, bucket, name, uses, run);
    if (options.group_gradients)
      builder.belongs(builder.together(name + ".grad", BucketRole::gradient, gradients), bucket);
  }
  for (const Op& op : graph.ops)
    if (op.phase == Phase::update &&
        std::find(op.writes.begin(), op.writes.end(), graph.clip) != op.writes.end())
      builder.together("square_sums", BucketRole::square_sums, op.reads);
  if (graph.loss != no_id) builder.single(graph.loss, BucketRole::loss);
  builder.single(graph.clip, BucketRole::clip);
  const std::vector<std::vector<TensorId>> slices = graph.slices();
  for (TensorId id = 0; id < graph.tensors.size(); ++id)
    if (slices[id].empty() || graph.tensor(id).kind != TensorKind::optimizer_state)
      builder.single(id,
                     graph.tensor(id).kind == TensorKind::input ? BucketRole::input : BucketRole::activation);
  BucketLayout layout = std::move(builder.layout());
  layout.target_bytes = options.target_bytes;
  layout.state_bytes.assign(layout.buckets.size(), 0);
  for (BucketId id = 0; id < layout.buckets.size(); ++id)
    if (layout.parameters_of[id] != no_id)
      layout.state_bytes[layout.parameters_of[id]] += layout.buckets[id].bytes;
  list_operands(graph, layout);
  layout.lanes = op_lanes(graph);
  layout.has_peers =
      std::find(layout.lanes.begin(), layout.lanes.end(), LaneRole::peer) != layout.lanes.end();
  return layout;
}

std::vector<LaneRole> op_lanes(const Graph& graph) {
  std::vector<LaneRole> lanes(graph.ops.size(), LaneRole::compute);
  std::vector<std::uint8_t> came_from_peers(graph.tensors.size(), 0);  // 1 for tensors made on the peer lane
  for (OpId id = 0; id < graph.ops.size(); ++id) {
    const Op& op = graph.op(id);
    const bool follows = op.phase == Phase::backward && !op.reads.empty() &&
                         std::all_of(op.reads.begin(), op.reads.end(),
                                     [&](TensorId read) { return came_from_peers[read] != 0; });
    if (!is_collective(op) && !is_between_stages(op) && !follows) continue;
    lanes[id] = LaneRole::peer;
    if (is_between_stages(op)) continue;
    for (const TensorId written : op.writes) came_from_peers[written] = 1;
  }
  return lanes;
}

}  // namespace stowage
