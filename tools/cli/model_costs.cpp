#include "tools/cli/model_costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "offload/parallel/layer_choice.h"
#include "offload/parallel/split.h"
#include "offload/parallel/stage.h"
#include "offload/plan/bound/bound.h"
#include "offload/recompute/execution_order.h"
#include "src/graph/cost.h"
#include "stowage/coded_activations.h"
#include "stowage/error.h"
#include "tools/cli/stage_plan.h"

namespace stowage {

struct ModelCosts::Node {
  Cluster cluster;
  Budget budget;  // of each device
};

struct ModelCosts::Layers {
  PrefixSums sums;
  std::vector<int> kind;  // by half-block: equal for half-blocks with equal sums
};

struct ModelCosts::FewParts {
  struct Collective {
    std::uint32_t half_block = 0;
    bool in_split = false;
    Op op;
  };
  int parts = 1;
  std::vector<HalfBlockSums> sums;  // without the collectives
  std::vector<Collective> collectives;
};

struct ModelCosts::Stage {
  std::optional<double> bound;
  bool planned = false;
  std::optional<StagePlan> plan;
};

namespace {

std::vector<int> kinds_of(const std::vector<HalfBlockSums>& sums) {
  std::vector<int> kinds;
  std::vector<HalfBlockSums> known;
  for (const HalfBlockSums& of : sums) {
    const auto found = std::find(known.begin(), known.end(), of);
    kinds.push_back(static_cast<int>(found - known.begin()));
    if (found == known.end()) known.push_back(of);
  }
  return kinds;
}

// True for a gather or an exchange of split_of.
bool is_of_split(const Graph& graph, const Op& op) {
  const std::string& written = graph.tensor(op.writes.front()).name;
  return written.ends_with(".gathered") || written.ends_with(".shares");
}

// Sets the cost of a gather or an exchange: of split products, or among the parts in a graph of one of `of`
// parts. Within a node the machine's link to its peers says what it takes.
void set_collective_cost(const GridShape& shape, int of, const Cluster& cluster, bool in_split, Op& op) {
  const int among = in_split ? shape.split : shape.parts, had = in_split ? shape.split : of;
  if (had == 1) return;
  const auto kind = op.kernel == "gather" ? CollectiveKind::gather : CollectiveKind::exchange;
  const double whole = op.cost.peer_bytes * had / (had - 1);
  op.cost.peer_bytes = whole * (among - 1) / among;
  const DeviceGroup group = in_split ? tensor_group(shape.split) : data_group(shape.parts, shape.split);
  if (cluster.nodes > 1)
    op.cost.seconds = cluster.machine.launch_seconds + collective_seconds(kind, whole, group, cluster);
}

// Returns the link from a stage to the next one; from the last to the first, the slowest of all of them.
Link link_from_stage(const GridShape& shape, int stage, const Cluster& cluster) {
  const auto link = [&](int from) { return link_to_next_stage(cluster, shape.parts, shape.split, from); };
  if (0 <= stage && stage + 1 < shape.stages) return link(stage);
  Link slowest = link(0);
  for (int from = 1; from + 1 < shape.stages; ++from)
    if (link(from).bytes_per_second < slowest.bytes_per_second) slowest = link(from);
  return slowest;
}

// Sets the costs of a stage's sends and collectives.
void set_peer_costs(const GridShape& shape, int stage, const Cluster& cluster, Graph& graph) {
  if (cluster.nodes == 1) return;
  const Link next = link_from_stage(shape, stage, cluster),
             before = link_from_stage(shape, stage - 1, cluster);
  for (Op& op : graph.ops) {
    if (is_between_stages(op)) {
      const bool is_next = (op.kernel == "send") == (op.phase == Phase::forward);
      const Link& link = is_next ? next : before;
      op.cost.seconds = link.latency_seconds + op.cost.peer_bytes / link.bytes_per_second;
    }
    if (is_collective(op))
      set_collective_cost(shape, shape.parts, cluster, shape.split > 1 && is_of_split(graph, op), op);
  }
}

// Makes the sums of one of `of` parts those of one of `parts`, which share weights, state and updates.
void share_among(int parts, int of, std::vector<HalfBlockSums>& sums) {
  const double factor = static_cast<double>(of) / parts;
  for (HalfBlockSums& each : sums)
    for (double* value :
         {&each.host_update_seconds, &each.weight_bytes, &each.gradient_bytes, &each.state_bytes})
      *value *= factor;
}

// Returns the model, or where all layers are alike and more than three, one of three that stands for it: of
// the first, which may make what all read, the last, and one between them.
ModelConfig with_few_layers(ModelConfig config) {
  constexpr std::int64_t few = 3;
  std::vector<std::int64_t>& windows = config.windows;
  const bool alike =
      std::adjacent_find(windows.begin(), windows.end(), std::not_equal_to<>()) == windows.end();
  if (!alike || config.layers <= few) return config;
  config.layers = few;
  if (!windows.empty()) windows.resize(few);
  return config;
}

// Where a graph of few blocks has what one of all layers repeats.
struct RepeatedBlock {
  std::size_t first = 0, last = 0;  // its half-blocks
  std::size_t copies = 0;           // to be inserted behind it
  // Returns the half-block of the larger graph.
  std::size_t place(std::size_t half_block) const {
    return half_block < last ? half_block : half_block + copies * (last - first);
  }
};

// The names differ where the graph of few blocks ends.
RepeatedBlock repeated_block(const std::vector<std::string>& few, const std::vector<std::string>& all,
                             std::size_t copies) {
  if (copies == 0) return {all.size(), all.size(), 0};
  const auto end = static_cast<std::size_t>(
      std::mismatch(few.begin(), few.end(), all.begin(), all.end()).first - few.begin());
  const std::size_t block = (all.size() - few.size()) / copies;
  return {end - 2 * block, end - block, copies};
}

// Graphs of more units take the planner many minutes.
constexpr std::int64_t most_units = 8192;
constexpr int most_planned_parts = 64;

}  // namespace

ModelCosts::ModelCosts(const ClusterQuestion& question) : question_(question) {
  ModelSpec one = question.model;
  one.config.ranks = one.config.gradient_groups = one.config.micro_batches = one.config.batch = 1;
  names_ = build(one).unit_names;
}
ModelCosts::~ModelCosts() = default;

std::string ModelCosts::name_of(std::uint32_t number) const { return names_.at(number); }

const ModelCosts::Node& ModelCosts::node_of(const GridShape& shape) {
  const int at_work = std::min(question_.devices_per_node, shape.devices());
  std::unique_ptr<Node>& node = nodes_[at_work];
  if (node) return *node;
  node = std::make_unique<Node>();
  node->cluster =
      cluster_of(question_.machine, question_.model.type, at_work, question_.nodes, question_.network);
  const Bytes card = question_.machine.device_bytes > 0 ? question_.machine.device_bytes : unlimited;
  node->budget.device = question_.device_memory.value_or(card);
  const Bytes host = question_.host_memory.value_or(host_budget_for(question_.machine, at_work));
  node->budget.host = host == unlimited ? unlimited : host / static_cast<Bytes>(at_work);
  return *node;
}

bool ModelCosts::may_plan(const GridShape& shape) {
  return shape.parts <= most_planned_parts &&
         shape.micro_batches * static_cast<std::int64_t>(half_blocks()) <= most_units * shape.stages;
}

Budget ModelCosts::budget(const GridShape& shape) { return node_of(shape).budget; }

StageRoom ModelCosts::room(const GridShape& shape) {
  const Node& node = node_of(shape);
  return {&node.cluster.machine, node.cluster.machine.arena_in(node.budget.device), node.budget.host};
}

double ModelCosts::send_seconds(const GridShape& shape, int stage, double bytes) {
  const Cluster& cluster = node_of(shape).cluster;
  const Link link =
      cluster.nodes > 1 ? link_to_next_stage(cluster, shape.parts, shape.split, stage) : cluster.machine.peer;
  return link.latency_seconds + bytes / link.bytes_per_second;
}

// Returns the step of one part: of all its micro-batches, and of all half-blocks.
Graph ModelCosts::rank_graph(const GridShape& shape, const Node& node, const ModelConfig& config) const {
  ModelSpec spec = question_.model;
  spec.config = config;
  spec.config.ranks = shape.parts;
  spec.config.gradient_groups = shape.parts;
  spec.config.micro_batches = shape.micro_batches * shape.parts;
  spec.config.batch = spec.config.micro_batches * shape.samples;
  // Split products have no rows for a chunk grid.
  const ChunkGrid grid = shape.split == 1 ? ChunkGrid{} : ChunkGrid{.most_slices = 1};
  // Codes are those of a device's own part.
  const std::optional<CodeBits> bits = spec.config.code_activations;
  if (shape.split > 1) spec.config.code_activations = {};
  Graph graph = split_of(build(spec, grid), shape.split);
  if (shape.split > 1 && bits) graph = with_coded_activations(graph, *bits);
  set_op_seconds(question_.machine, question_.model.type, node.cluster.machine, graph);
  return graph;
}

const Graph& ModelCosts::whole_graph(const GridShape& shape) {
  if (!whole_ || whole_->first != shape)
    whole_.emplace(shape, rank_graph(shape, node_of(shape), question_.model.config));
  return whole_->second;
}

Graph ModelCosts::stage_graph(const GridShape& shape, int stage, const std::vector<HalfBlocks>& ranges) {
  Graph graph = stage_of(whole_graph(shape), ranges);
  set_peer_costs(shape, stage, node_of(shape).cluster, graph);
  return graph;
}

// A graph of two parts says what each of any number does, and one of few layers what more of them do, but for
// the few bytes of the norm's parts.
const ModelCosts::FewParts& ModelCosts::few_parts_of(const GridShape& shape) {
  const int at_work = std::min(shape.devices(), question_.devices_per_node);
  const int parts = std::min(2, shape.parts);
  std::unique_ptr<FewParts>& few = few_parts_[{at_work, parts, shape.split, shape.samples}];
  if (few) return *few;
  few = std::make_unique<FewParts>();
  GridShape one = shape;
  one.micro_batches = 1;
  one.parts = few->parts = parts;
  const Node& node = node_of(shape);
  const ModelConfig config = with_few_layers(question_.model.config);
  Graph graph = rank_graph(one, node, config);
  const RepeatedBlock block = repeated_block(
      graph.unit_names, names_, static_cast<std::size_t>(question_.model.config.layers - config.layers));
  for (Op& op : graph.ops) {
    if (!is_collective(op)) continue;
    const std::size_t half_block = graph.half_block_of(op.unit);
    const bool is_repeated = block.first <= half_block && half_block < block.last;
    for (std::size_t copy = 0; copy <= (is_repeated ? block.copies : 0); ++copy) {
      const std::size_t at =
          is_repeated ? half_block + copy * (block.last - block.first) : block.place(half_block);
      few->collectives.push_back(
          {static_cast<std::uint32_t>(at), shape.split > 1 && is_of_split(graph, op), op});
    }
    op.cost = {};
    op.cost.seconds = 0;
  }
  const std::vector<HalfBlockSums> sums = half_block_sums(graph, node.cluster.machine);
  few->sums = sums;
  for (std::size_t copy = 0; copy < block.copies; ++copy)
    few->sums.insert(few->sums.begin() + static_cast<std::ptrdiff_t>(block.last),
                     sums.begin() + static_cast<std::ptrdiff_t>(block.first),
                     sums.begin() + static_cast<std::ptrdiff_t>(block.last));
  return *few;
}

const ModelCosts::Layers& ModelCosts::layers_of(const GridShape& shape) {
  const int at_work = std::min(shape.devices(), question_.devices_per_node);
  std::unique_ptr<Layers>& layers = layers_[{at_work, shape.parts, shape.split, shape.samples}];
  if (layers) return *layers;
  const FewParts& few = few_parts_of(shape);
  const Cluster& cluster = node_of(shape).cluster;
  std::vector<HalfBlockSums> sums = few.sums;
  for (FewParts::Collective collective : few.collectives) {
    set_collective_cost(shape, few.parts, cluster, collective.in_split, collective.op);
    sums[collective.half_block].peer_seconds += op_seconds(collective.op, cluster.machine);
  }
  share_among(shape.parts, few.parts, sums);
  layers = std::make_unique<Layers>(Layers{PrefixSums(sums), kinds_of(sums)});
  return *layers;
}

const PrefixSums& ModelCosts::sums(const GridShape& shape) { return layers_of(shape).sums; }

// Stages of half-blocks alike, in the same order of micro-batches and with links alike, have the same plan.
ModelCosts::Stage& ModelCosts::stage_at(const GridShape& shape, int stage,
                                        const std::vector<HalfBlocks>& ranges) {
  const Layers& layers = layers_of(shape);
  const int width = shape.parts * shape.split;  // devices of a stage
  std::string key = fmt::format("{} {} {} {} {} {} {}:", shape.parts, shape.split, shape.samples,
                                shape.micro_batches, shape.stages == 1 ? 0 : shape.ahead(stage),
                                std::min(shape.devices(), question_.devices_per_node),
                                question_.nodes > 1 ? stage * width % question_.devices_per_node : 0);
  // Several ranges also send from the last stage to the first one.
  if (ranges.size() > 1 && shape.devices() > question_.devices_per_node) key += " over nodes";
  for (const auto& [first, last] : ranges) {
    for (std::uint32_t block = first; block < last; ++block) key += fmt::format(" {}", layers.kind[block]);
    key += ';';
  }
  std::unique_ptr<Stage>& found = stages_[key];
  if (!found) found = std::make_unique<Stage>();
  return *found;
}

double ModelCosts::bound_seconds(const GridShape& shape, int stage, const std::vector<HalfBlocks>& ranges) {
  Stage& of = stage_at(shape, stage, ranges);
  if (of.bound) return *of.bound;
  try {
    const Graph graph = stage_graph(shape, stage, ranges);
    const Node& node = node_of(shape);
    MicroBatchOrder order = MicroBatchOrder::ahead(shape.ahead(stage));
    if (shape.stages == 1 || !is_far_ahead(graph, order)) order = MicroBatchOrder::layer_major;
    const Problem problem =
        make_problem(graph, node.cluster.machine, {.target_bytes = 0}, order, question_.options.stop,
                     question_.options.optimizer_in_backward ? EarlyUpdates::final : EarlyUpdates::undoable);
    of.bound =
        lower_bound(problem, {node.cluster.machine.arena_in(node.budget.device), node.budget.host}).seconds;
  } catch (const Cancelled&) {
    cancelled_ = true;
    return 0;
  }
  return *of.bound;
}

std::optional<StagePlan> ModelCosts::plan(const GridShape& shape, int stage,
                                          const std::vector<HalfBlocks>& ranges) {
  Stage& of = stage_at(shape, stage, ranges);
  if (of.planned) return of.plan;
  ++work_;
  try {
    const Graph graph = stage_graph(shape, stage, ranges);
    const Node& node = node_of(shape);
    PlanOptions options = question_.options;
    if (shape.stages > 1) options.order = MicroBatchOrder::ahead(shape.ahead(stage));
    Answer answer = Planner(graph, node.cluster.machine, options).answer(node.budget);
    of.planned = true;
    // Where only host memory lacks, the device has enough.
    if (const auto* refused = std::get_if<Infeasible>(&answer.outcome)) {
      const auto key = [](const Infeasible& of) { return std::pair(!of.host, of.minimum); };
      if (!least_refused_ || key(*refused) < key(*least_refused_)) least_refused_ = *refused;
    }
    if (const auto* plan = std::get_if<Plan>(&answer.outcome))
      of.plan = stage_plan(graph, *plan, answer.peak, node.cluster.machine);
  } catch (const Cancelled&) {
    cancelled_ = true;
  }
  return of.plan;
}

bool can_split(const ModelConfig& config, int split) {
  const std::int64_t key_heads = config.key_heads > 0 ? config.key_heads : config.heads;
  return config.heads % split == 0 && key_heads % split == 0 && config.padded_vocabulary % split == 0;
}

std::vector<GridShape> shapes_of(const ClusterQuestion& question, std::uint32_t half_blocks) {
  std::vector<GridShape> shapes;
  const std::int64_t batch = question.model.config.batch;
  std::vector<std::int64_t> divisors;
  for (std::int64_t samples = 1; samples <= batch; ++samples)
    if (batch % samples == 0) divisors.push_back(samples);
  const int devices = question.devices();
  for (int split = 1; split <= question.devices_per_node; split *= 2)
    for (int parts = 1; parts * split <= devices && can_split(question.model.config, split); parts *= 2) {
      if (batch % parts != 0) break;
      for (int stages = 1; stages * parts * split <= devices && stages <= static_cast<int>(half_blocks);
           ++stages)
        for (const std::int64_t samples : divisors)
          for (const int ranges : {1, 2, 4}) {
            GridShape shape{stages, parts, split, samples, batch / parts / samples, GridOrder::one_f_one_b,
                            ranges};
            const bool is_idle = ranges > 1 && (stages == 1 || shape.micro_batches < stages);
            const bool has_half_blocks = static_cast<std::uint32_t>(stages * ranges) <= half_blocks;
            if (batch / parts % samples == 0 && has_half_blocks && !is_idle) shapes.push_back(shape);
          }
    }
  return shapes;
}

}  // namespace stowage
