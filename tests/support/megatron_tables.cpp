#include "tests/support/megatron_tables.h"

#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <map>
#include <sstream>

#include "stowage/error.h"

namespace stowage::testing {
namespace {

// An A100 and its links, with bytes per second as README.md of the data gives them.
constexpr double product_rate = 312e12, memory_rate = 2039e9;
const PeerCurve inside_node{{.bytes_per_second = 240e9, .latency_seconds = 10e-6}};
const PeerCurve between_nodes{{.bytes_per_second = 20e9, .latency_seconds = 0}};
constexpr double send_latency = 20e-6;
constexpr double update_bytes = 26;  // read and written for each parameter

DeviceRates rates_of(const MegatronConstants& constants) {
  return {constants.products * product_rate, constants.memory * memory_rate};
}

double device_parameters(const MegatronRow& row) {
  return row.sizes.layers * row.sizes.layer_parameters() / (row.split * row.stages) +
         row.sizes.table_parameters() / row.split;
}

// Two forwards and a backward of one layer, with the collectives around its products.
double layer_seconds(const MegatronRow& row, const MegatronConstants& constants) {
  const double forward = layer_forward_seconds(row.sizes, row.samples, row.split, rates_of(constants));
  double around = 0;  // of one direction
  for (const LayerCollective& each : split_collectives(row.sizes, row.samples, row.split)) {
    if (each.phase == Phase::forward)
      around += one_level_seconds(inside_node, each.collective, each.bytes, row.split);
  }
  return 2 * (forward + around) + 2 * forward + around;
}

// What a chunk receives and sends for a micro-batch, both directions: each of the devices that share the
// products sends its part, and the receivers gather.
double sends_seconds(const MegatronRow& row) {
  if (row.stages == 1) return 0;
  const double bytes = row.samples * row.sizes.sequence * row.sizes.hidden * row.sizes.element_bytes;
  const Link link{.bytes_per_second = between_nodes.link.bytes_per_second * row.split,
                  .latency_seconds = send_latency};
  const double gather = bytes * (row.split - 1) / row.split / inside_node.link.bytes_per_second;
  return 2 * (link.latency_seconds + bytes / link.bytes_per_second + gather);
}

double update_seconds(const MegatronRow& row, const MegatronConstants& constants) {
  return update_bytes * device_parameters(row) / rates_of(constants).bytes_per_second;
}

}  // namespace

std::vector<MegatronRow> read_megatron_table(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  const auto cells_of = [](const std::string& text) {
    std::vector<std::string> cells;
    std::istringstream stream(text);
    for (std::string cell; std::getline(stream, cell, ',');) cells.push_back(cell);
    return cells;
  };
  if (!std::getline(file, line)) throw InvalidInput(path + ": no table");
  const std::vector<std::string> names = cells_of(line);
  std::vector<MegatronRow> rows;
  while (std::getline(file, line)) {
    const std::vector<std::string> cells = cells_of(line);
    if (cells.size() != names.size()) throw InvalidInput(path + ": a row of another length");
    std::map<std::string, std::string> cell;
    for (std::size_t i = 0; i < names.size(); ++i) cell[names[i]] = cells[i];
    const auto number = [&](const char* name) { return std::stoi(cell.at(name)); };
    MegatronRow row;
    row.model = cell.contains("model") ? cell["model"] : cell.at("scheme");
    row.sizes = {.layers = std::stod(cell.at("layers")),
                 .hidden = std::stod(cell.at("hidden")),
                 .heads = std::stod(cell.at("heads")),
                 .sequence = 2048,
                 .vocabulary = 51200,
                 .element_bytes = 2};
    row.split = number("tensor");
    row.stages = number("pipeline");
    row.samples = number("micro_batch_samples");
    row.devices = number("devices");
    row.batch = number("batch_samples");
    row.teraflops = std::stod(cell.at("teraflops_per_device"));
    if (const int chunk = cell.contains("layers_per_virtual_stage") ? number("layers_per_virtual_stage") : 0;
        chunk > 0)
      row.virtual_stages = static_cast<int>(row.sizes.layers) / row.stages / chunk;
    rows.push_back(row);
  }
  return rows;
}

double megatron_step_seconds(const MegatronRow& row, const MegatronConstants& constants) {
  const double micro_batches = static_cast<double>(row.batch) / (row.parts() * row.samples);
  const double stage =
      row.sizes.layers / row.stages * layer_seconds(row, constants) + row.virtual_stages * sends_seconds(row);
  const double head = 3 * head_forward_seconds(row.sizes, row.samples, row.split, rates_of(constants));
  const double gradients = device_parameters(row) * row.sizes.element_bytes;
  double exchange = 0;
  for (const Collective collective : {Collective::exchange, Collective::gather})
    exchange += one_level_seconds(between_nodes, collective, gradients, row.parts());
  return micro_batches * (stage + head) + (row.stages - 1.0) / row.virtual_stages * stage + exchange +
         update_seconds(row, constants);
}

double zero3_step_seconds(const MegatronRow& row, const MegatronConstants& constants) {
  const double micro_batches = static_cast<double>(row.batch) / (row.parts() * row.samples);
  double moved = 0;
  for (const LayerCollective& each :
       parts_collectives(row.sizes, device_parameters(row), row.parts(), Replicas::shares))
    moved += one_level_seconds(between_nodes, each.collective, each.bytes, row.parts());
  const double computed = row.sizes.layers * layer_seconds(row, constants) +
                          3 * head_forward_seconds(row.sizes, row.samples, row.split, rates_of(constants));
  return micro_batches * (computed + moved) + update_seconds(row, constants) / row.parts();
}

double megatron_teraflops(const MegatronRow& row, double step_seconds) {
  const TransformerSizes& of = row.sizes;
  const double flops = 96 * static_cast<double>(row.batch) * of.sequence * of.layers * of.hidden * of.hidden *
                       (1 + of.sequence / (6 * of.hidden) + of.vocabulary / (16 * of.layers * of.hidden));
  return flops / step_seconds / row.devices / 1e12;
}

MegatronConstants fit_megatron(const std::vector<MegatronRow>& rows) {
  // Gauss-Newton on the logarithms of both constants.
  double products = 0, memory = 0;
  const auto miss = [&](const MegatronRow& row, double p, double m) {
    return std::log(megatron_teraflops(row, megatron_step_seconds(row, {std::exp(p), std::exp(m)})) /
                    row.teraflops);
  };
  constexpr double step = 1e-6;
  for (int round = 0; round < 50; ++round) {
    double pp = 0, pm = 0, mm = 0, p = 0, m = 0;
    for (const MegatronRow& row : rows) {
      const double at = miss(row, products, memory);
      const double by_p = (miss(row, products + step, memory) - at) / step,
                   by_m = (miss(row, products, memory + step) - at) / step;
      pp += by_p * by_p;
      pm += by_p * by_m;
      mm += by_m * by_m;
      p += by_p * at;
      m += by_m * at;
    }
    const double determinant = pp * mm - pm * pm;
    products -= (mm * p - pm * m) / determinant;
    memory -= (pp * m - pm * p) / determinant;
  }
  return {std::exp(products), std::exp(memory)};
}

}  // namespace stowage::testing
