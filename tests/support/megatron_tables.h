// Tables 1 and 2 of Narayanan et al., SC 2021 (Megatron-LM), and a formula of two constants for their rows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "offload/parallel/layer_costs.h"

namespace stowage::testing {

struct MegatronRow {
  std::string model;  // of table 1; scheme of table 2
  TransformerSizes sizes;
  int split = 1, stages = 1;
  int samples = 1;  // of a micro-batch
  int devices = 1;
  std::int64_t batch = 1;
  int virtual_stages = 1;
  double teraflops = 0;  // of each device, published

  int parts() const { return devices / (split * stages); }
};

// Reads table1.csv or table2.csv. Throws InvalidInput for a file that is none.
std::vector<MegatronRow> read_megatron_table(const std::string& path);

// Shares of an A100's rates that a step reaches: of its products' and of its memory's.
struct MegatronConstants {
  double products = 1, memory = 1;
};

// Seconds of a step of stages alike, with activations rebuilt.
double megatron_step_seconds(const MegatronRow& row, const MegatronConstants& constants);
// The step of ZeRO-3: weights are gathered for forward and for backward, which rebuilds, of each micro-batch,
// and gradients exchanged, all over the links between nodes.
double zero3_step_seconds(const MegatronRow& row, const MegatronConstants& constants);
// Teraflops of each device if a step takes so long.
double megatron_teraflops(const MegatronRow& row, double step_seconds);

// Fits both constants by least squares of logarithms of the step on the given rows.
MegatronConstants fit_megatron(const std::vector<MegatronRow>& rows);

}  // namespace stowage::testing
