// ParallelCosts: what a model's layers cost on several devices, as plain data, whoever measured or computed
// it. The searches of search.h cut the layers into stages and choose how each stage is computed.
//
// Words. A *stage* is consecutive layers on devices of their own. A micro-batch passes all stages forward and
// then all stages backward. A *variant* is one way to compute a layer on `parts * split` devices: each of
// `parts` groups computes an equal part of the micro-batch, and the `split` devices of a group share each
// product. A *grid* is stages that all have the same `parts` and the same `split`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "offload/parallel/saturated.h"
#include "stowage/bytes.h"
#include "stowage/machine.h"

namespace stowage {

// The number that a search minimises.
enum class ParallelObjective : std::uint8_t {
  step,           // seconds of a step
  largest_stage,  // seconds between two micro-batches in the slowest stage, which a long step tends to
};
// The order of a stage's work, which decides how many micro-batches it has in flight.
enum class PipelineOrder : std::uint8_t {
  one_f_one_b,  // 1F1B: min(micro-batches, stages from this one on)
  gpipe,        // GPipe: all micro-batches
};
// The rule for the micro-batches that stage s has in flight under 1F1B.
enum class InFlight : std::uint8_t {
  stages,  // as many as there are stages from s on
  parts,   // the parts of all stages from s on, divided by its own parts and rounded up: groups of a stage
           // take whole micro-batches in turn (Tarnawski et al., Piper, NeurIPS 2021)
};
// Whether a stage computes while it sends.
enum class Sending : std::uint8_t {
  beside,  // computes: a send delays the micro-batch, and the link is one more thing that no two of them
           // share
  within,  // nothing: what it receives and sends is part of its own time
};
// The number of links that carry a stage's bytes to its neighbours: one for each device, or one for each
// part.
enum class Links : std::uint8_t { devices, parts };

std::string_view to_string(ParallelObjective objective);
std::string_view to_string(PipelineOrder order);
std::string_view to_string(InFlight in_flight);
std::string_view to_string(Sending sending);
std::string_view to_string(Links links);

// One way to compute a layer, for one micro-batch. Bytes are those of each device.
struct LayerVariant {
  std::string name;
  int parts = 1;
  int split = 1;
  double forward_seconds = 0;
  double backward_seconds = 0;
  Bytes bytes = 0;            // there through the whole step: weights, gradients, optimizer state, workspace
  Bytes bytes_in_flight = 0;  // for each micro-batch in flight: activations
  Bytes exchanged_bytes = 0;  // gradients that a device exchanges once a step, at `exchange_bytes_per_second`
  // Seconds of the layer in the micro-batch beside which the gradients are exchanged, forward and backward
  // together. Not set: forward plus backward, nothing is exchanged there.
  std::optional<double> seconds_with_exchange{};

  int devices() const { return parts * split; }
  double seconds() const { return forward_seconds + backward_seconds; }
  Bytes bytes_with(std::int64_t micro_batches) const {  // so many in flight
    return saturated_sum(bytes, saturated_product(bytes_in_flight, micro_batches));
  }
  friend bool operator==(const LayerVariant&, const LayerVariant&) = default;
};

struct ParallelLayer {
  std::string name;
  std::vector<LayerVariant> variants;
};

// Bytes that one layer makes and a later one reads, for one micro-batch. They count for a stage that has one
// of the two layers and not the other, forward as activations and backward as gradients.
struct CrossingValue {
  int from = 0, to = 0;  // numbers of layers, from < to
  Bytes bytes = 0;
  Bytes entering = 0;  // more bytes where it enters a stage with a layer that may be split
  Bytes leaving = 0;   // more bytes where it leaves such a stage
  friend bool operator==(const CrossingValue&, const CrossingValue&) = default;
};

// Seconds lost in each micro-batch where a layer of variant `from` is followed by one of variant `to` in the
// same stage. Pairs that are not listed lose nothing if their parts and split are equal; otherwise they
// cannot follow one another.
struct VariantChange {
  std::string from, to;
  double seconds = 0;
  friend bool operator==(const VariantChange&, const VariantChange&) = default;
};

struct ParallelCosts {
  int devices = 1;
  bool use_all_devices = false;  // true: plans that leave a device idle do not count
  std::int64_t batch = 0;        // samples of a step; 0: not known
  std::int64_t micro_batches = 1;
  Bytes memory = unlimited;  // of each device
  ParallelObjective objective = ParallelObjective::step;
  PipelineOrder order = PipelineOrder::one_f_one_b;
  InFlight in_flight = InFlight::stages;
  Sending sending = Sending::beside;
  Links links = Links::devices;
  Link link{};                           // each link between two stages; both directions take turns on it
  double exchange_bytes_per_second = 0;  // 0: no variant has exchanged_bytes
  std::vector<ParallelLayer> layers;
  // For each pair of neighbouring layers, bytes that pass from one side to the other forward, and as many
  // back; empty: none.
  std::vector<Bytes> cut_bytes;
  std::vector<CrossingValue> values;  // beside `cut_bytes`
  std::vector<VariantChange> changes;
};

// Limits of costs from outside.
inline constexpr int most_parallel_layers = 1024;
inline constexpr std::size_t most_name_characters = 256;
inline constexpr int most_parallel_devices = 4096;
inline constexpr std::int64_t most_micro_batches = std::int64_t{1} << 32;
inline constexpr std::size_t most_variants = std::size_t{1} << 18;  // of all layers together
inline constexpr std::int64_t most_batch = std::int64_t{1} << 40;
inline constexpr std::size_t most_crossing_values = std::size_t{1} << 16;
inline constexpr std::size_t most_changes = std::size_t{1} << 16;
inline constexpr double most_layer_seconds = 1e9;
inline constexpr double least_rate = 1, most_rate = 1e18;  // bytes per second
inline constexpr Bytes most_layer_bytes = Bytes{1} << 50U;
inline constexpr Bytes most_memory = Bytes{1} << 62U;

// Throws InvalidInput for costs that no search can take: it names the field and says what to give.
void check_costs(const ParallelCosts& costs);

// Versioned JSON, loss-free (docs/parallel.md has the fields). `to_json` throws InvalidInput for costs that
// `parallel_costs_from_json` would refuse.
std::string to_json(const ParallelCosts& costs);
// Treats its text as hostile: InvalidInput that names the field and says what to do, never worse. Variants
// whose parts do not divide the samples of a micro-batch are refused if no other is left for their layer, and
// left out otherwise.
ParallelCosts parallel_costs_from_json(std::string_view text);

}  // namespace stowage
