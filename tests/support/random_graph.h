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
  BatchShare share{};  // of one rank; sizes of ops are not a whole batch's
  ChunkGrid grid{};
  int frozen_percent = 0;  // percentage of parameters that are not trained
  int fixed_percent = 0;   // percentage of forward ops that cannot be replayed
};

// Returns a whole step, forward to update, that passes check(). It has ops with several inputs and outputs,
// skips over many units, tied parameters, sizes from one element up, workspaces, values worked on in place,
// and backward ops that read some of their forward op's operands. All ops have the kernel "mix"
// (mix_kernel.h), except those that GraphBuilder makes itself. The same seed makes the same graph everywhere.
Graph random_graph(std::uint64_t seed, const RandomGraphOptions& options = {});

// Returns a machine. Its links range from links that starve the device to links that never matter.
Machine random_machine(std::uint64_t seed);
// Returns the random_machine of the seed, but with lanes that slow each other. The rate that a lane keeps
// beside others depends on the seed: from hardly any to nearly all of it.
Machine shared_machine(std::uint64_t seed);
// Returns the seed's shared_machine for one of three seeds, else its random_machine.
Machine any_machine(std::uint64_t seed);

// Returns any_machine of the seed, with peers. The peers' link is from a hundredth to a hundred times as fast
// as the machine's own link, and has the same latency. Of nine consecutive seeds, three take each PeerPath.
Machine machine_with_peers(std::uint64_t seed);

// Returns a device size in [minimum, need]; both ends are likely. Returns `minimum` if it is
// not below `need`.
Bytes random_budget(std::uint64_t seed, Bytes minimum, Bytes need);

}  // namespace stowage::testing
