// Cost models of a Transformer on several devices: what its layers compute, which collectives they need at
// which op, and the costs that the searches take.
//
// Sources: products divided between devices, Shoeybi et al., Megatron-LM, 2019, section 3, with the gathers
// and exchanges of Korthikanti et al., 2022, section 4.2.2; flops and stages, Narayanan et al., SC 2021,
// sections 2 and 3; shares of weights and gradients, Rajbhandari et al., ZeRO, SC 2020, section 5.
#pragma once

#include <string>
#include <vector>

#include "offload/parallel/collectives.h"
#include "offload/parallel/costs.h"
#include "stowage/graph.h"

namespace stowage {

// A Transformer of layers alike: attention and an MLP of 4 * hidden. Sizes are numbers, not bytes.
struct TransformerSizes {
  double layers = 1;
  double hidden = 1;
  double heads = 1;
  double sequence = 1;
  double vocabulary = 1;
  double element_bytes = 2;  // of an activation, a weight and a gradient

  double layer_parameters() const { return 12 * hidden * hidden; }
  double table_parameters() const { return vocabulary * hidden; }
};

// What one device computes and reads.
struct DeviceRates {
  double flops_per_second = 1;
  double bytes_per_second = 1;  // of its own memory
};

// One collective of a layer.
struct LayerCollective {
  std::string op;  // the op before which it gathers, or behind which it exchanges
  Phase phase = Phase::forward;
  Collective collective = Collective::gather;
  double bytes = 0;          // of the whole
  bool of_parts = false;     // among the parts of the batch; else among the devices that share the products
  bool once_a_step = false;  // else for each micro-batch
};

// How the parts of the batch have the weights.
enum class Replicas : std::uint8_t {
  whole,   // each has all; gradients are exchanged and weights gathered once a step
  shares,  // each has its share; weights are gathered before each use
};

// Returns the collectives of a layer whose micro-batch has `samples` samples in each part: a gather before
// and an exchange behind each pair of products, in backward the other way round. Empty for a split of 1.
std::vector<LayerCollective> split_collectives(const TransformerSizes& sizes, double samples, int split);
// Returns the collectives between `parts` replicas of `parameters` weights on each device. Empty for 1 part.
std::vector<LayerCollective> parts_collectives(const TransformerSizes& sizes, double parameters, int parts,
                                               Replicas replicas);

// Returns the seconds of those collectives that come in a micro-batch, or once a step.
double collectives_seconds(const Cluster& cluster, const std::vector<LayerCollective>& collectives, int parts,
                           int split, Phase phase, bool once_a_step);

// Returns the seconds in which one of `split` devices computes a layer forward for so many samples: products
// of 24 b s h^2 (1 + s / 6h) flops by their rate, and 16 b s h + (18 b s h + 10 a s^2 b) / split bytes of
// device memory by theirs. Backward takes twice as long.
double layer_forward_seconds(const TransformerSizes& sizes, double samples, int split,
                             const DeviceRates& rates);
// Returns the same of the head's logits, forward: 2 b s h V flops.
double head_forward_seconds(const TransformerSizes& sizes, double samples, int split,
                            const DeviceRates& rates);

// Returns the bytes of one device that a layer keeps from forward to backward for one micro-batch of
// `samples` samples: of each element of the layer's input, 34 and 5 a s / h (Korthikanti et al., 2022,
// equation 2; 10 of the 34 are not split); if the layer is rebuilt, its input alone.
double kept_bytes(const TransformerSizes& sizes, double samples, int split, bool rebuilt);

struct TransformerQuestion {
  TransformerSizes sizes;
  Cluster cluster;
  DeviceRates rates;
  std::int64_t batch = 1;
  std::int64_t micro_batches = 1;
  Bytes memory = unlimited;
  double bytes_per_parameter = 18;  // weight, gradient and AdamW's state
  Replicas replicas = Replicas::whole;
};

// Returns the costs of the model's stages: the embedding, each layer kept or rebuilt, the head, in every
// number of parts and every split within a node that divide the batch and the heads. The working memory of
// the one layer that is being rebuilt is not counted. Throws InvalidInput for sizes that are not positive,
// and for a batch that the micro-batches do not divide.
ParallelCosts costs_of_transformer(const TransformerQuestion& question);

}  // namespace stowage
