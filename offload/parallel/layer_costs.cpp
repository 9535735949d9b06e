#include "offload/parallel/layer_costs.h"

#include <fmt/format.h>

#include <cmath>

#include "stowage/error.h"

namespace stowage {
namespace {

constexpr const char* pairs_of_products[][2] = {{"attention.qkv", "attention.projection"},
                                                {"mlp.up", "mlp.down"}};

// A layer's or a table's cost on the devices of one part, without the exchange of gradients.
struct PartCost {
  double forward = 0, backward = 0;
  double parameters = 0;  // on each device
  double kept = 0;        // bytes of each device for a micro-batch
};

LayerVariant variant_of(const TransformerQuestion& question, const PartCost& cost, int parts, int split,
                        const std::string& name) {
  const auto collectives = parts_collectives(question.sizes, cost.parameters, parts, question.replicas);
  const auto seconds = [&](Phase phase, bool once) {
    return collectives_seconds(question.cluster, collectives, parts, split, phase, once);
  };
  LayerVariant variant;
  variant.name = fmt::format("{} {}x{}", name, parts, split);
  variant.parts = parts;
  variant.split = split;
  variant.forward_seconds = cost.forward + seconds(Phase::forward, false);
  variant.backward_seconds = cost.backward + seconds(Phase::backward, false);
  const double once = seconds(Phase::forward, true) + seconds(Phase::backward, true);
  if (once > 0) variant.seconds_with_exchange = variant.seconds() + once;
  const double shares = question.replicas == Replicas::shares ? parts : 1;
  variant.bytes = static_cast<Bytes>(std::ceil(cost.parameters * question.bytes_per_parameter / shares));
  variant.bytes_in_flight = static_cast<Bytes>(std::ceil(cost.kept));
  return variant;
}

void check_transformer(const TransformerQuestion& question) {
  const TransformerSizes& sizes = question.sizes;
  for (const double size :
       {sizes.layers, sizes.hidden, sizes.heads, sizes.sequence, sizes.vocabulary, sizes.element_bytes,
        question.rates.flops_per_second, question.rates.bytes_per_second, question.bytes_per_parameter}) {
    if (!(size > 0 && size < 1e30))
      throw InvalidInput(fmt::format("a size or rate of the model is {}; give a positive number", size));
  }
  if (question.batch < 1 || question.micro_batches < 1 || question.batch % question.micro_batches != 0)
    throw InvalidInput(fmt::format("{} micro-batches do not divide a batch of {}; give numbers that do",
                                   question.micro_batches, question.batch));
}

}  // namespace

std::vector<LayerCollective> split_collectives(const TransformerSizes& sizes, double samples, int split) {
  std::vector<LayerCollective> all;
  if (split == 1) return all;
  const double bytes = samples * sizes.sequence * sizes.hidden * sizes.element_bytes;
  for (const auto& [first, last] : pairs_of_products) {
    all.push_back({first, Phase::forward, Collective::gather, bytes, false, false});
    all.push_back({last, Phase::forward, Collective::exchange, bytes, false, false});
    all.push_back({last, Phase::backward, Collective::gather, bytes, false, false});
    all.push_back({first, Phase::backward, Collective::exchange, bytes, false, false});
  }
  return all;
}

std::vector<LayerCollective> parts_collectives(const TransformerSizes& sizes, double parameters, int parts,
                                               Replicas replicas) {
  std::vector<LayerCollective> all;
  if (parts == 1) return all;
  const double bytes = parameters * sizes.element_bytes;
  const bool once = replicas == Replicas::whole;
  all.push_back({"weights", Phase::forward, Collective::gather, bytes, true, once});
  if (!once) all.push_back({"weights", Phase::backward, Collective::gather, bytes, true, false});
  all.push_back({"gradients", Phase::backward, Collective::exchange, bytes, true, true});
  return all;
}

double collectives_seconds(const Cluster& cluster, const std::vector<LayerCollective>& collectives, int parts,
                           int split, Phase phase, bool once_a_step) {
  double seconds = 0;
  for (const LayerCollective& each : collectives) {
    if (each.phase != phase || each.once_a_step != once_a_step) continue;
    const DeviceGroup group = each.of_parts ? parts_group(parts, split) : split_group(split);
    seconds += collective_seconds(cluster, each.collective, each.bytes, group);
  }
  return seconds;
}

double layer_forward_seconds(const TransformerSizes& sizes, double samples, int split,
                             const DeviceRates& rates) {
  const double elements = samples * sizes.sequence * sizes.hidden;
  const double flops = 24 * elements * sizes.hidden * (1 + sizes.sequence / (6 * sizes.hidden));
  const double scores = sizes.heads * sizes.sequence * sizes.sequence * samples;
  const double bytes = 16 * elements + (18 * elements + 10 * scores) / split;
  return flops / (split * rates.flops_per_second) + bytes / rates.bytes_per_second;
}

double head_forward_seconds(const TransformerSizes& sizes, double samples, int split,
                            const DeviceRates& rates) {
  return 2 * samples * sizes.sequence * sizes.hidden * sizes.vocabulary / (split * rates.flops_per_second);
}

double kept_bytes(const TransformerSizes& sizes, double samples, int split, bool rebuilt) {
  const double elements = samples * sizes.sequence * sizes.hidden;
  if (rebuilt) return sizes.element_bytes * elements;
  return elements * (10 + (24 + 5 * sizes.heads * sizes.sequence / sizes.hidden) / split);
}

ParallelCosts costs_of_transformer(const TransformerQuestion& question) {
  check_transformer(question);
  const TransformerSizes& sizes = question.sizes;
  const Cluster& cluster = question.cluster;
  ParallelCosts costs;
  costs.devices = cluster.devices();
  costs.batch = question.batch;
  costs.micro_batches = question.micro_batches;
  costs.memory = question.memory;
  costs.link = cluster.nodes > 1 ? cluster.shared_between() : cluster.inside.link;
  const std::int64_t samples = question.batch / question.micro_batches;
  ParallelLayer embedding{"embedding", {}}, layer{"", {}}, head{"head", {}};
  for (int split = 1; split <= cluster.devices_per_node; ++split) {
    if (std::fmod(sizes.heads, split) != 0 || cluster.devices_per_node % split != 0) continue;
    for (int parts = 1; parts * split <= cluster.devices() && parts <= samples; ++parts) {
      if (samples % parts != 0) continue;
      const double own = static_cast<double>(samples) / parts;
      const double input = own * sizes.sequence * sizes.hidden * sizes.element_bytes;
      const double table = sizes.table_parameters() / split;
      const auto around = split_collectives(sizes, own, split);
      const double around_forward = collectives_seconds(cluster, around, parts, split, Phase::forward, false);
      const double around_backward =
          collectives_seconds(cluster, around, parts, split, Phase::backward, false);
      const double forward = layer_forward_seconds(sizes, own, split, question.rates);
      const double logits = head_forward_seconds(sizes, own, split, question.rates);
      const double reading = input / question.rates.bytes_per_second;
      embedding.variants.push_back(variant_of(question, {reading, reading, table, 0}, parts, split, "kept"));
      for (const bool rebuilt : {false, true}) {
        const double again = rebuilt ? forward + around_forward : 0;
        layer.variants.push_back(
            variant_of(question,
                       {forward + around_forward, 2 * forward + around_backward + again,
                        sizes.layer_parameters() / split, kept_bytes(sizes, own, split, rebuilt)},
                       parts, split, rebuilt ? "rebuilt" : "kept"));
      }
      head.variants.push_back(variant_of(question, {logits, 2 * logits, table, input}, parts, split, "kept"));
    }
  }
  costs.layers.push_back(std::move(embedding));
  for (int i = 0; i < static_cast<int>(sizes.layers); ++i) {
    costs.layers.push_back(layer);
    costs.layers.back().name = fmt::format("layer.{}", i);
  }
  costs.layers.push_back(std::move(head));
  const double cut = static_cast<double>(samples) * sizes.sequence * sizes.hidden * sizes.element_bytes;
  costs.cut_bytes.assign(costs.layers.size() - 1, static_cast<Bytes>(cut));
  return costs;
}

}  // namespace stowage
