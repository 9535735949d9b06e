// Seeded training steps, machines and budgets, for tests that judge every plan.
#pragma once

#include <cstdint>

#include "stowage/graph.h"
#include "stowage/graph_builder.h"
#include "stowage/machine.h"

namespace stowage::testing {

struct RandomGraphOptions {
  int max_units = 6;
  int max_ops_per_unit = 4;
  std::int64_t max_elements = 1 << 15;  // of one tensor
  std::uint32_t micro_batches = 1;      // built alike, with the same draws
  std::uint32_t gradient_groups = 1;
  BatchShare share{};  // of one rank; the kernels' sizes are not those of a whole batch
  ChunkGrid grid{};
  int frozen_percent = 0;  // of the parameters: not trained
  int fixed_percent = 0;   // of the forward ops: not replayable
};

// A whole step, forward to update, that passes check(): ops with several inputs and outputs, skips
// over many units, tied parameters, sizes from one element up, workspaces, values worked on in
// place, and backward ops that read some of what their forward op read or wrote. All ops have the
// kernel "mix" (mix_kernel.h) but those that GraphBuilder makes itself. The same seed makes the same
// graph everywhere.
Graph random_graph(std::uint64_t seed, const RandomGraphOptions& options = {});

// From links that starve the device to links that never matter.
Machine random_machine(std::uint64_t seed);
// The same, but that its lanes slow each other: shares that depend on the seed, from hardly any to nearly
// all.
Machine shared_machine(std::uint64_t seed);
// One of three is a shared one.
Machine any_machine(std::uint64_t seed);

// The same machine as any_machine, with peers whose link is from a hundredth to a hundred times as fast as
// its own, and as long; of nine seeds that follow each other three take each PeerPath.
Machine machine_with_peers(std::uint64_t seed);

// A device size in [minimum, need], both ends likely; `minimum` when it is not below `need`.
Bytes random_budget(std::uint64_t seed, Bytes minimum, Bytes need);

}  // namespace stowage::testing
