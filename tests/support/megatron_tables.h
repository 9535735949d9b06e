// Tables 1 and 2 of Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using
// Megatron-LM", SC 2021, and a formula of two constants for their rows: stages alike, activations rebuilt.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "offload/parallel/layer_costs.h"

namespace stowage::testing {

// How a row's devices share the work.
struct MegatronWay {
  int split = 1;                   // t
  int stages = 1;                  // p
  int virtual_stages = 1;          // v, chunks of a stage
  std::int64_t micro_samples = 1;  // b, of one part
};

struct MegatronRow {
  std::string name;
  bool shares = false;  // ZeRO-3: weights in shares of all devices
  TransformerShape shape{};
  int layers = 1;
  int devices = 1;
  std::int64_t batch = 1;  // samples of a step
  MegatronWay way{};
  double teraflops = 0;  // of each device, as published
};

// Reads table1.csv or table2.csv. Throws InvalidInput for a file that is none.
std::vector<MegatronRow> read_megatron_table(const std::string& path);
// Returns rows without ZeRO-3's, and ZeRO-3's alone.
std::vector<MegatronRow> megatron_rows(const std::vector<MegatronRow>& rows, bool shares);

// Fractions of an A100's data sheet that kernels reach: 312 TFLOP/s, 2,039 GB/s. Fitted constants absorb what
// the formula leaves out, so one may be above 1.
struct MegatronConstants {
  double products = 1;
  double memory = 1;
};

// Bytes per second of a device: inside its node, and to other nodes.
struct MegatronLinks {
  double inside = 240e9;
  double between = 20e9;
};

int parts_of(const MegatronRow& row, const MegatronWay& way);
std::int64_t micro_batches_of(const MegatronRow& row, const MegatronWay& way);

// Seconds of a step: all micro-batches on the last stage, (stages - 1) / virtual_stages of one without the
// head, the exchange and gather of weights, the update. Requires a way that divides the row's devices, layers
// and batch.
double megatron_seconds(const MegatronRow& row, const MegatronWay& way, const MegatronConstants& constants,
                        const MegatronLinks& links = {});
// Returns the figure that the tables print for a step of so many seconds: operations of the model, rebuilt
// ones included (the paper's equation 3), by device and second.
double teraflops_of(const MegatronRow& row, double step_seconds);

// The constants that fit the rows best: least squares of the logarithm of seconds. Gauss-Newton from 1 and 1.
// Requires two rows or more.
MegatronConstants fit_megatron(const std::vector<MegatronRow>& rows, const MegatronLinks& links = {});

// The largest | predicted / published - 1 | of the rows' figures.
double largest_miss(const std::vector<MegatronRow>& rows, const MegatronConstants& constants,
                    const MegatronLinks& links = {});

// What the formula says of a ZeRO-3 row: seconds of a step, by what it spends them on.
struct SharesSeconds {
  double compute = 0;     // products, other ops, update
  double flat = 0;        // gathers and exchanges over links between nodes alone
  double two_levels = 0;  // the same inside nodes of 8 and between them
};
SharesSeconds shares_seconds(const MegatronRow& row, const MegatronConstants& constants);

// Bytes of the device that needs most, of those of the first and the last stage (docs/parallel.md): 18 bytes
// a parameter, inputs of layers in flight, one layer whole, logits.
double megatron_bytes(const MegatronRow& row, const MegatronWay& way);

// Returns the way of least predicted step in which no device needs more than `memory` bytes. Splits are
// powers of two up to a node's 8 devices that divide the heads; stages divide the layers, virtual stages the
// layers of a stage, and then stages the micro-batches; parts times samples divide the batch. Nullopt if none
// fits.
std::optional<MegatronWay> best_megatron_way(const MegatronRow& row, const MegatronConstants& constants,
                                             double memory);

}  // namespace stowage::testing
