// Cost models of a Transformer whose layers are spread over devices: what they compute, hold and send, and
// ParallelCosts of the model on a cluster. Pure functions of plain data; one place for each formula.
//
// Letters: b samples, s sequence, h hidden, f mlp width, a heads, V vocabulary, t split, d parts, e bytes of
// an element. b is the samples of one part: each of d parts computes b samples of a micro-batch of d * b.
//
// Sources:
//   [S19] Shoeybi et al., "Megatron-LM: Training Multi-Billion Parameter Language Models Using Model
//         Parallelism", 2019 (arXiv 1909.08053), section 3
//   [N21] Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using
//         Megatron-LM", SC 2021 (arXiv 2104.04473)
//   [K22] Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", 2022 (arXiv
//         2205.05198)
//   [R20] Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC 2020
//         (arXiv 1910.02054)
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "offload/parallel/collectives.h"
#include "offload/parallel/costs.h"
#include "stowage/graph.h"

namespace stowage {

// Sizes of a model, of which all blocks are alike. Attention has a heads of h / a elements for queries, keys
// and values each; the MLP has two products. Embedding and head have tables of their own.
struct TransformerShape {
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t mlp_width = 0;
  std::int64_t sequence = 0;
  std::int64_t vocabulary = 0;
  int element_bytes = 2;  // of activations, weights and exchanged gradients
  // True: between two pairs of products (norms, residual sums) each of the t devices holds and computes its
  // share of the rows ([K22], section 4.2). False: each has all rows ([S19], [N21]). The collectives move the
  // same bytes; if false, the gather follows the exchange at once.
  bool rows_in_shares = true;
};

// A `block` is an attention half and an MLP half.
enum class LayerKind : std::uint8_t { embedding, block, head };

// The way in which the d parts keep the weights that they all compute with.
enum class WeightKeeping : std::uint8_t {
  whole,   // each keeps them; once a step gradients are exchanged and updated weights gathered
  shares,  // each keeps a share; every micro-batch gathers weights before their use and exchanges gradients
};

// One way to compute a layer.
struct LayerSpread {
  int parts = 1;             // d
  int split = 1;             // t; divides a and f
  std::int64_t samples = 1;  // b
  bool rebuilt = false;      // a block's activations are dropped and forward is replayed in backward
  WeightKeeping weights = WeightKeeping::whole;
};

enum class GroupKind : std::uint8_t { tensor, data };

// A gather or an exchange of one layer, by one group.
struct LayerCollective {
  std::string_view op;  // the product that reads what is gathered, or made what is exchanged; static text
  Phase phase = Phase::forward;
  CollectiveKind kind = CollectiveKind::gather;
  double bytes = 0;  // of the whole
  GroupKind group = GroupKind::tensor;
  bool replay = false;       // a second time, in backward
  bool once_a_step = false;  // false: in every micro-batch
  friend bool operator==(const LayerCollective&, const LayerCollective&) = default;
};

// Returns the collectives of a micro-batch, and those of a step, in the order of forward, then that of
// backward, then the update's. None in groups of one device.
// - Tensor ([S19], figure 3; [N21], section 2.3): forward gathers the e b s h bytes of rows before each pair
//   of products (qkv, projection; up, down), and exchanges as many after it; backward is the mirror image. A
//   device then receives 8 e b s h (t-1)/t bytes of a block and micro-batch ([N21], section 3.2). The
//   embedding exchanges what it looked up; the head gathers before its product, and exchanges and gathers
//   three numbers of 4 bytes for each row (largest logit, sum, the target's logit: [S19], section 3).
// - Data ([N21], section 3.3; [R20], section 7): e bytes of each parameter that a device computes with.
std::vector<LayerCollective> layer_collectives(const TransformerShape& shape, LayerKind kind,
                                               const LayerSpread& spread);

// Returns the seconds of a micro-batch's collectives in a phase, one after the other and beside nothing else.
double collectives_seconds(const std::vector<LayerCollective>& collectives, Phase phase,
                           const LayerSpread& spread, const Cluster& cluster);
// Returns the seconds of those that a step has once.
double step_collectives_seconds(const std::vector<LayerCollective>& collectives, const LayerSpread& spread,
                                const Cluster& cluster);

// Returns the parameters that each of t devices computes with. A block: (4 h^2 + 2 h f + 3 h + f)/t and 6 h
// (norms, and biases that are added after an exchange); 12 h^2 + 13 h in all if f = 4 h ([N21], equation 2).
// Embedding and head: the rows of the fullest device, ceil(V/t) h, and s h positions or the last norm's 2 h.
double layer_parameters(const TransformerShape& shape, LayerKind kind, int split);

// Operations of matrix products, and bytes that other ops read and write in device memory.
struct LayerWork {
  double flops = 0;
  double bytes = 0;
};
// Returns what each of t devices computes of b samples in forward; backward is twice that.
// - Products ([N21], appendix): a block 2 b s (4 h^2 + 2 h f)/t + 4 b s^2 h/t, the head 2 b s h ceil(V/t).
// - Bytes, an estimate for kernels of one op each: a block passes 8 times over b s h elements (norms and
//   residual sums), of which t devices have a share each if rows are in shares; once over b s h/t and twice
//   over b s f/t (activation function); 5 times over the a b s^2/t scores. Embedding and head pass twice over
//   rows or logits.
LayerWork forward_work(const TransformerShape& shape, LayerKind kind, std::int64_t samples, int split);
// Returns flops at the machine's rate and bytes at that of device memory, one after the other.
double compute_seconds(const LayerWork& work, const Machine& machine);

// Returns the bytes that each device keeps of b samples from forward to backward ([K22], section 4). A block:
// - in each of t devices whole: the two gathered inputs, 2 e b s h; with all rows also the norms' inputs and
//   two masks, (2 e + 2) b s h, else a share of them;
// - a share: queries, keys, values and the projection's input, 4 e b s h; 2 e b s f; 2 e + 1 bytes for each
//   score.
// With all rows and e = 2, f = 4 h these are s b h (10 + 24/t + 5 a s/(h t)). A rebuilt block keeps its
// input, e b s h or a share of it; while it is replayed, it also needs what one that is not rebuilt keeps.
// The head keeps its gathered input, the norm's, and logits of ceil(V/t); the embedding a mask.
double activation_bytes(const TransformerShape& shape, LayerKind kind, std::int64_t samples, int split,
                        bool rebuilt);

// Returns e b s h: the bytes that one part sends over a cut between layers, and receives in backward ([N21],
// section 3.2).
double cut_bytes(const TransformerShape& shape, std::int64_t samples);
// Returns the seconds of one such send, one way: each of t devices sends a share over its own link `between`.
// If a device needs all rows, the receivers gather them over `inside` ([N21], section 4.1).
double send_seconds(const TransformerShape& shape, std::int64_t samples, int split, const Link& between,
                    const PeerCurve& inside);

// Bytes beside a weight: gradient, and what the optimizer has of each parameter (an f32 copy and two
// moments).
struct ParameterBytes {
  double gradient = 4;
  double state = 12;
};
// Returns the bytes of device memory that an update of so many parameters reads and writes: state twice, the
// weight once. (The gradient is read as it is exchanged.)
double update_bytes(double parameters, int element_bytes, const ParameterBytes& parameter_bytes);

// Seconds and bytes of a layer in one way. State is kept and updated in shares of d devices in either case
// ([R20]); with WeightKeeping::whole weights and gradients are whole.
struct LayerCost {
  double forward_seconds = 0;
  double backward_seconds = 0;  // a replay included
  double step_seconds = 0;  // behind the last micro-batch: exchange of gradients, update, gather of weights
  double bytes = 0;         // through the whole step
  double bytes_in_flight = 0;  // for each micro-batch in flight
};
LayerCost layer_cost(const TransformerShape& shape, LayerKind kind, const LayerSpread& spread,
                     const ParameterBytes& parameter_bytes, const Cluster& cluster);

// A model of an embedding, `blocks` blocks and a head, to be trained on a cluster.
struct TransformerQuestion {
  TransformerShape shape{};
  int blocks = 1;
  std::int64_t micro_batch_samples = 1;  // of all parts
  std::int64_t micro_batches = 1;
  WeightKeeping weights = WeightKeeping::whole;
  ParameterBytes parameter_bytes{};
  // Bytes of each device for what is counted here. To be left out of it by the caller: activations of one
  // whole block, if blocks are rebuilt, gathered weights of a layer, if they are kept in shares, and
  // Machine::overhead_bytes.
  Bytes memory = unlimited;
  Cluster cluster{};
};

// Returns costs with a variant of each layer for each (parts, split) of at most all devices in which parts
// divide the samples and split divides heads and mlp width; of blocks also one that rebuilds.
// - Each device of a stage sends its own rows, on the slowest of the links that stages may have: with several
//   nodes the network's with all devices of a node sending.
// - `exchanged_bytes` are LayerCost::step_seconds at the slowest rate of the cluster: the variants' groups
//   have unlike links, and ParallelCosts one rate.
// Throws InvalidInput for sizes that are not positive or too large, for heads that do not divide `hidden`,
// for rows that are not in shares (ParallelCosts has no place for the gather behind a send), and as
// check_cluster and check_costs do.
ParallelCosts parallel_costs_of(const TransformerQuestion& question);

}  // namespace stowage
