// Random layers to spread over devices, and the best pipeline of them by trying every one.
#pragma once

#include <optional>
#include <random>

#include "offload/parallel/costs.h"

namespace stowage::testing {

struct ChainShape {
  int least_layers = 3, most_layers = 7;
  int least_devices = 2, most_devices = 6;
  int most_micro_batches = 16;
};

// Costs of a random chain of layers: variants that rebuild or keep their activations, on one device and on
// several; a third with a limit of memory, of which some leave no pipeline at all; all ways of sending and
// counting.
ParallelCosts random_chain(std::mt19937_64& random, const ChainShape& shape = {});

struct BestByTrying {
  double value = 0;  // of the costs' objective
  double way = 0, pace = 0, tail = 0;
};

// Tries every division into stages, every layout of each stage and every variant of each layer, computed from
// the costs alone. `grids`: only pipelines whose layers all have the same parts and split count. Returns
// nullopt if none fits.
std::optional<BestByTrying> best_by_trying(const ParallelCosts& costs, bool grids);

}  // namespace stowage::testing
