// Megatron-LM's published rows beside a formula of two constants, and what the same formula would choose.
#include <fmt/format.h>

#include <cmath>
#include <exception>

#include "tests/support/megatron_tables.h"

namespace {

using namespace stowage;
using testing::MegatronConstants;
using testing::MegatronRow;

constexpr int devices_of_a_node = 8;
constexpr double device_bytes = 80e9;
constexpr double bytes_per_parameter =
    18;  // two of the weight, four of the gradient, twelve of AdamW's state

// Bytes of the first stage's devices: weights and state; the inputs of its layers, which are rebuilt, for
// each micro-batch in flight; and all of one layer while it is rebuilt.
double bytes_of_device(const MegatronRow& row) {
  const double layers = row.sizes.layers / row.stages;
  const double parameters =
      layers * row.sizes.layer_parameters() / row.split + row.sizes.table_parameters() / row.split;
  const double micro_batches = static_cast<double>(row.batch) / (row.parts() * row.samples);
  double in_flight = std::min<double>(micro_batches, row.stages);
  // Of interleaved chunks more are in flight: section 2.2 has 1 + (p - 1) / (p v) times as many.
  if (row.virtual_stages > 1) in_flight *= 1 + (row.stages - 1.0) / (row.stages * row.virtual_stages);
  return parameters * bytes_per_parameter +
         in_flight * layers * kept_bytes(row.sizes, row.samples, row.split, true) +
         kept_bytes(row.sizes, row.samples, row.split, false);
}

// The grid of least predicted step that fits, over all of them.
MegatronRow best_choice(const MegatronRow& row, const MegatronConstants& constants) {
  MegatronRow best = row;
  double least = std::numeric_limits<double>::infinity();
  const int layers = static_cast<int>(row.sizes.layers), heads = static_cast<int>(row.sizes.heads);
  for (int split = 1; split <= devices_of_a_node; split *= 2) {
    for (int stages = 1; stages <= layers; ++stages) {
      if (heads % split != 0 || layers % stages != 0 || row.devices % (split * stages) != 0) continue;
      for (int samples = 1; samples <= 64; samples *= 2) {
        for (int chunks = 1; chunks <= layers / stages; ++chunks) {
          MegatronRow other = row;
          other.split = split;
          other.stages = stages;
          other.samples = samples;
          other.virtual_stages = chunks;
          const std::int64_t each = static_cast<std::int64_t>(other.parts()) * samples;
          if (row.batch % each != 0 || (layers / stages) % chunks != 0) continue;
          if (chunks > 1 && (stages == 1 || row.batch / each % stages != 0)) continue;
          if (bytes_of_device(other) > device_bytes) continue;
          const double seconds = testing::megatron_step_seconds(other, constants);
          if (seconds >= least) continue;
          least = seconds;
          best = other;
        }
      }
    }
  }
  return best;
}

std::string shape(const MegatronRow& row) {
  return fmt::format("{} x {} x {}, {} samples, {} chunks", row.stages, row.parts(), row.split, row.samples,
                     row.virtual_stages);
}

void print_rows(const std::vector<MegatronRow>& rows, const MegatronConstants& constants) {
  for (const MegatronRow& row : rows) {
    const bool shares = row.model == "ZeRO-3";
    const double seconds =
        shares ? testing::zero3_step_seconds(row, constants) : testing::megatron_step_seconds(row, constants);
    const double predicted = testing::megatron_teraflops(row, seconds);
    const MegatronRow best = best_choice(row, constants);
    const double chosen = testing::megatron_teraflops(best, testing::megatron_step_seconds(best, constants));
    fmt::print("| {} on {} | {} | {:.0f} | {:.1f} | {:+.1f} % | {} | {:.1f} |\n", row.model, row.devices,
               shape(row), row.teraflops, predicted, 100 * (predicted / row.teraflops - 1), shape(best),
               chosen);
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) {
    fmt::print(stderr, "megatron_bench FOLDER: the folder of table1.csv and table2.csv\n");
    return 2;
  }
  try {
    const std::string folder = arguments[1];
    const auto first = testing::read_megatron_table(folder + "/table1.csv");
    const auto second = testing::read_megatron_table(folder + "/table2.csv");
    const MegatronConstants constants = testing::fit_megatron({first[0], first[6]});
    fmt::print("products {:.4f}, memory {:.4f} of an A100's rates\n\n", constants.products, constants.memory);
    fmt::print(
        "| row | stages x parts x split | published | formula | | the formula's choice | its figure "
        "|\n|---|---|---|---|---|---|---|\n");
    print_rows(first, constants);
    print_rows(second, constants);
  } catch (const std::exception& error) {
    fmt::print(stderr, "megatron_bench: {}\n", error.what());
    return 2;
  }
}
