#include "offload/parallel/layer_costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "stowage/error.h"

namespace stowage {
namespace {

constexpr double loss_bytes_of_row = 12;  // largest logit, sum, the target's logit; f32
constexpr double row_passes = 8, score_passes = 5, logit_passes = 2, lookup_passes = 2;
constexpr double backward_of_forward = 2;  // work of backward over that of forward

// A product of a layer, or its table. Of a pair of products, one opens and one closes it.
struct LayerOp {
  std::string_view name;
  double parameters = 0;  // that each device computes with
  bool opens = false;     // reads gathered rows
  bool closes = false;    // its result is a sum over the devices of a tensor group
};

double rows_of(const TransformerShape& shape, std::int64_t samples) {
  return static_cast<double>(samples) * static_cast<double>(shape.sequence);
}

double row_elements(const TransformerShape& shape, std::int64_t samples) {
  return rows_of(shape, samples) * static_cast<double>(shape.hidden);
}

double score_elements(const TransformerShape& shape, std::int64_t samples) {
  return rows_of(shape, samples) * static_cast<double>(shape.sequence) * static_cast<double>(shape.heads);
}

// Returns the vocabulary's part of the device that has most of it.
double vocabulary_of_device(const TransformerShape& shape, int split) {
  return std::ceil(static_cast<double>(shape.vocabulary) / split);
}

std::vector<LayerOp> ops_of(const TransformerShape& shape, LayerKind kind, int split) {
  const double h = static_cast<double>(shape.hidden), f = static_cast<double>(shape.mlp_width);
  const double norm = 2 * h, table = vocabulary_of_device(shape, split) * h;
  switch (kind) {
    case LayerKind::embedding:
      return {{"embedding", table + static_cast<double>(shape.sequence) * h, false, true}};
    case LayerKind::head:
      return {{"head", table + norm, true, false}};
    case LayerKind::block:
      break;
  }
  return {{"attention.qkv", (3 * h * h + 3 * h) / split + norm, true, false},
          {"attention.projection", h * h / split + h, false, true},
          {"mlp.up", (h * f + f) / split + norm, true, false},
          {"mlp.down", f * h / split + h, false, true}};
}

class CollectiveList {
 public:
  CollectiveList(const TransformerShape& shape, LayerKind kind, const LayerSpread& spread)
      : spread_(spread), kind_(kind), ops_(ops_of(shape, kind, spread.split)) {
    element_bytes_ = shape.element_bytes;
    row_bytes_ = element_bytes_ * row_elements(shape, spread.samples);
    loss_bytes_ = loss_bytes_of_row * rows_of(shape, spread.samples);
  }

  std::vector<LayerCollective> all() {
    add_forward(Phase::forward, false);
    const bool replayed = spread_.rebuilt && kind_ == LayerKind::block;
    if (replayed) add_forward(Phase::backward, true);
    for (auto op = ops_.rbegin(); op != ops_.rend(); ++op) add_backward(*op, replayed);
    if (spread_.weights == WeightKeeping::whole) add_step();
    return std::move(list_);
  }

 private:
  LayerSpread spread_;
  LayerKind kind_;
  std::vector<LayerOp> ops_;
  double element_bytes_ = 0, row_bytes_ = 0, loss_bytes_ = 0;
  std::vector<LayerCollective> list_;

  void tensor(std::string_view op, Phase phase, CollectiveKind kind, double bytes, bool replay) {
    if (spread_.split > 1) list_.push_back({op, phase, kind, bytes, GroupKind::tensor, replay, false});
  }
  void data(const LayerOp& op, Phase phase, CollectiveKind kind, bool replay, bool once_a_step) {
    const double bytes = element_bytes_ * op.parameters;
    if (spread_.parts > 1)
      list_.push_back({op.name, phase, kind, bytes, GroupKind::data, replay, once_a_step});
  }

  void add_forward(Phase phase, bool replay) {
    for (const LayerOp& op : ops_) {
      if (spread_.weights == WeightKeeping::shares) data(op, phase, CollectiveKind::gather, replay, false);
      if (op.opens) tensor(op.name, phase, CollectiveKind::gather, row_bytes_, replay);
      if (op.closes) tensor(op.name, phase, CollectiveKind::exchange, row_bytes_, replay);
    }
    if (kind_ != LayerKind::head) return;
    tensor("head.loss", phase, CollectiveKind::exchange, loss_bytes_, replay);
    tensor("head.loss", phase, CollectiveKind::gather, loss_bytes_, replay);
  }
  // Weights that a replay has gathered are still there.
  void add_backward(const LayerOp& op, bool replayed) {
    const bool shares = spread_.weights == WeightKeeping::shares;
    if (shares && !replayed) data(op, Phase::backward, CollectiveKind::gather, false, false);
    if (op.closes) tensor(op.name, Phase::backward, CollectiveKind::gather, row_bytes_, false);
    if (op.opens) tensor(op.name, Phase::backward, CollectiveKind::exchange, row_bytes_, false);
    if (shares) data(op, Phase::backward, CollectiveKind::exchange, false, false);
  }
  void add_step() {
    for (auto op = ops_.rbegin(); op != ops_.rend(); ++op)
      data(*op, Phase::backward, CollectiveKind::exchange, false, true);
    for (const LayerOp& op : ops_) data(op, Phase::update, CollectiveKind::gather, false, true);
  }
};

double seconds_of(const LayerCollective& collective, const LayerSpread& spread, const Cluster& cluster) {
  const DeviceGroup group = collective.group == GroupKind::tensor ? tensor_group(spread.split)
                                                                  : data_group(spread.parts, spread.split);
  return collective_seconds(collective.kind, collective.bytes, group, cluster);
}

}  // namespace

std::vector<LayerCollective> layer_collectives(const TransformerShape& shape, LayerKind kind,
                                               const LayerSpread& spread) {
  return CollectiveList(shape, kind, spread).all();
}

double collectives_seconds(const std::vector<LayerCollective>& collectives, Phase phase,
                           const LayerSpread& spread, const Cluster& cluster) {
  double seconds = 0;
  for (const LayerCollective& each : collectives)
    if (each.phase == phase && !each.once_a_step) seconds += seconds_of(each, spread, cluster);
  return seconds;
}

double step_collectives_seconds(const std::vector<LayerCollective>& collectives, const LayerSpread& spread,
                                const Cluster& cluster) {
  double seconds = 0;
  for (const LayerCollective& each : collectives)
    if (each.once_a_step) seconds += seconds_of(each, spread, cluster);
  return seconds;
}

double layer_parameters(const TransformerShape& shape, LayerKind kind, int split) {
  double parameters = 0;
  for (const LayerOp& op : ops_of(shape, kind, split)) parameters += op.parameters;
  return parameters;
}

LayerWork forward_work(const TransformerShape& shape, LayerKind kind, std::int64_t samples, int split) {
  const double h = static_cast<double>(shape.hidden), f = static_cast<double>(shape.mlp_width);
  const double s = static_cast<double>(shape.sequence), e = shape.element_bytes;
  const double elements = row_elements(shape, samples);
  const double logits = rows_of(shape, samples) * vocabulary_of_device(shape, split);
  switch (kind) {
    case LayerKind::embedding:
      return {0, lookup_passes * e * elements};
    case LayerKind::head:
      return {2 * h * logits, logit_passes * e * logits};
    case LayerKind::block:
      break;
  }
  const double whole = row_passes * e * elements;
  const double share =
      e * (elements + 2 * rows_of(shape, samples) * f + score_passes * score_elements(shape, samples));
  return {(2 * elements * (4 * h + 2 * f) + 4 * elements * s) / split,
          (shape.rows_in_shares ? whole / split : whole) + share / split};
}

double compute_seconds(const LayerWork& work, const Machine& machine) {
  return work.flops / machine.flops_per_second + work.bytes / machine.device_bytes_per_second;
}

double activation_bytes(const TransformerShape& shape, LayerKind kind, std::int64_t samples, int split,
                        bool rebuilt) {
  const double e = shape.element_bytes, elements = row_elements(shape, samples);
  const double row_shares = shape.rows_in_shares ? split : 1;
  switch (kind) {
    case LayerKind::embedding:
      return elements / row_shares;
    case LayerKind::head:
      return e * (elements + elements / row_shares +
                  rows_of(shape, samples) * vocabulary_of_device(shape, split));
    case LayerKind::block:
      break;
  }
  if (rebuilt) return e * elements / row_shares;
  const double share = 4 * e * elements +
                       2 * e * rows_of(shape, samples) * static_cast<double>(shape.mlp_width) +
                       (2 * e + 1) * score_elements(shape, samples);
  return 2 * e * elements + (2 * e + 2) * elements / row_shares + share / split;
}

double cut_bytes(const TransformerShape& shape, std::int64_t samples) {
  return shape.element_bytes * row_elements(shape, samples);
}

double send_seconds(const TransformerShape& shape, std::int64_t samples, int split, const Link& between,
                    const PeerCurve& inside) {
  const double bytes = cut_bytes(shape, samples);
  const double sent = between.latency_seconds + bytes / split / between.bytes_per_second;
  return shape.rows_in_shares ? sent
                              : sent + collective_seconds(CollectiveKind::gather, bytes, split, inside);
}

double update_bytes(double parameters, int element_bytes, const ParameterBytes& parameter_bytes) {
  return parameters * (2 * parameter_bytes.state + element_bytes);
}

LayerCost layer_cost(const TransformerShape& shape, LayerKind kind, const LayerSpread& spread,
                     const ParameterBytes& parameter_bytes, const Cluster& cluster) {
  const std::vector<LayerCollective> collectives = layer_collectives(shape, kind, spread);
  const bool rebuilt = spread.rebuilt && kind == LayerKind::block;
  const double forward =
      compute_seconds(forward_work(shape, kind, spread.samples, spread.split), cluster.machine);
  const double own_bytes = shape.element_bytes + parameter_bytes.gradient;
  const double kept = spread.weights == WeightKeeping::whole ? own_bytes : own_bytes / spread.parts;
  const double parameters = layer_parameters(shape, kind, spread.split);
  const double updated = update_bytes(parameters / spread.parts, shape.element_bytes, parameter_bytes);
  LayerCost cost;
  cost.forward_seconds = forward + collectives_seconds(collectives, Phase::forward, spread, cluster);
  cost.backward_seconds = (backward_of_forward + (rebuilt ? 1 : 0)) * forward +
                          collectives_seconds(collectives, Phase::backward, spread, cluster);
  cost.step_seconds =
      step_collectives_seconds(collectives, spread, cluster) + compute_seconds({0, updated}, cluster.machine);
  cost.bytes = parameters * (kept + parameter_bytes.state / spread.parts);
  cost.bytes_in_flight = activation_bytes(shape, kind, spread.samples, spread.split, spread.rebuilt);
  return cost;
}

namespace {

constexpr std::int64_t most_elements = std::int64_t{1} << 26;  // in one dimension of a shape
constexpr std::int64_t most_samples = std::int64_t{1} << 20;
constexpr int most_element_bytes = 8;
constexpr double most_bytes_of_parameter = 64;

[[noreturn]] void refuse_model(std::string_view field, const std::string& value, const std::string& remedy) {
  throw InvalidInput(fmt::format("transformer: '{}' is {}; give {}", field, value, remedy));
}

void require_between(std::string_view field, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value < least || value > most)
    refuse_model(field, std::to_string(value), fmt::format("{} to {}", least, most));
}

void require_parameter_bytes(std::string_view field, double bytes) {
  if (!(bytes >= 0 && bytes <= most_bytes_of_parameter))
    refuse_model(field, fmt::format("{}", bytes), fmt::format("0 to {} bytes", most_bytes_of_parameter));
}

void check_transformer(const TransformerQuestion& question) {
  const TransformerShape& shape = question.shape;
  require_between("hidden", shape.hidden, 1, most_elements);
  require_between("heads", shape.heads, 1, most_elements);
  require_between("mlp_width", shape.mlp_width, 1, most_elements);
  require_between("sequence", shape.sequence, 1, most_elements);
  require_between("vocabulary", shape.vocabulary, 1, most_elements);
  require_between("element_bytes", shape.element_bytes, 1, most_element_bytes);
  require_between("blocks", question.blocks, 1, most_parallel_layers - 2);
  require_between("micro_batch_samples", question.micro_batch_samples, 1, most_samples);
  require_between("micro_batches", question.micro_batches, 1, most_batch / most_samples);
  require_parameter_bytes("parameter_bytes.gradient", question.parameter_bytes.gradient);
  require_parameter_bytes("parameter_bytes.state", question.parameter_bytes.state);
  if (shape.hidden % shape.heads != 0) {
    refuse_model("heads", std::to_string(shape.heads),
                 fmt::format("a divisor of 'hidden', which is {}", shape.hidden));
  }
  if (!shape.rows_in_shares)
    refuse_model("rows_in_shares", "false", "true: costs have no place for the gather behind a send");
  check_cluster(question.cluster);
}

// Returns bytes that check_costs refuses if they are too many.
Bytes whole_bytes(double bytes) {
  return static_cast<Bytes>(std::ceil(std::min(bytes, 2.0 * static_cast<double>(most_layer_bytes))));
}

// Returns the link of stages that lie in unlike nodes and fill them.
Link slowest_link(const Cluster& cluster) {
  return cluster.nodes > 1 ? network_link(cluster, cluster.devices_per_node) : cluster.inside.link;
}

LayerVariant variant_of(const TransformerQuestion& question, LayerKind kind, const LayerSpread& spread,
                        double exchange_rate) {
  const LayerCost cost = layer_cost(question.shape, kind, spread, question.parameter_bytes, question.cluster);
  LayerVariant variant;
  variant.name = fmt::format("{}x{}{}", spread.parts, spread.split, spread.rebuilt ? " rebuilt" : "");
  variant.parts = spread.parts;
  variant.split = spread.split;
  variant.forward_seconds = cost.forward_seconds;
  variant.backward_seconds = cost.backward_seconds;
  variant.bytes = whole_bytes(cost.bytes);
  variant.bytes_in_flight = whole_bytes(cost.bytes_in_flight);
  variant.exchanged_bytes = whole_bytes(cost.step_seconds * exchange_rate);
  return variant;
}

// Returns every spread that fits, activations kept.
std::vector<LayerSpread> spreads_of(const TransformerQuestion& question) {
  const TransformerShape& shape = question.shape;
  const int devices = question.cluster.devices();
  std::vector<LayerSpread> spreads;
  for (int split = 1; split <= devices; ++split) {
    if (shape.heads % split != 0 || shape.mlp_width % split != 0) continue;
    for (int parts = 1; parts * split <= devices; ++parts) {
      const std::int64_t samples = question.micro_batch_samples;
      if (samples % parts == 0) spreads.push_back({parts, split, samples / parts, false, question.weights});
    }
  }
  return spreads;
}

ParallelLayer layer_of(const TransformerQuestion& question, LayerKind kind, std::string name,
                       double exchange_rate) {
  ParallelLayer layer{std::move(name), {}};
  for (LayerSpread spread : spreads_of(question)) {
    layer.variants.push_back(variant_of(question, kind, spread, exchange_rate));
    if (kind != LayerKind::block) continue;
    spread.rebuilt = true;
    layer.variants.push_back(variant_of(question, kind, spread, exchange_rate));
  }
  return layer;
}

}  // namespace

ParallelCosts parallel_costs_of(const TransformerQuestion& question) {
  check_transformer(question);
  ParallelCosts costs;
  costs.devices = question.cluster.devices();
  costs.micro_batches = question.micro_batches;
  costs.batch = question.micro_batches * question.micro_batch_samples;
  costs.memory = question.memory;
  costs.link = slowest_link(question.cluster);
  costs.exchange_bytes_per_second = costs.link.bytes_per_second;
  const double rate = costs.exchange_bytes_per_second;
  costs.layers.push_back(layer_of(question, LayerKind::embedding, "embedding", rate));
  const ParallelLayer block = layer_of(question, LayerKind::block, "", rate);
  for (int i = 0; i < question.blocks; ++i)
    costs.layers.push_back({fmt::format("block {}", i), block.variants});
  costs.layers.push_back(layer_of(question, LayerKind::head, "head", rate));
  costs.cut_bytes.assign(costs.layers.size() - 1,
                         whole_bytes(cut_bytes(question.shape, question.micro_batch_samples)));
  check_costs(costs);
  return costs;
}

}  // namespace stowage
