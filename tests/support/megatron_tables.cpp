#include "tests/support/megatron_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>

#include "stowage/error.h"

namespace stowage::testing {
namespace {

constexpr double a100_flops = 312e12, a100_bytes = 2039e9;  // data sheet
constexpr int node_devices = 8;
// Of an exchange or a gather; both together are an all-reduce, for which 20 microseconds are usual.
constexpr double inside_latency = 10e-6;
constexpr double send_latency = 20e-6;
constexpr double bytes_of_parameter = 18;  // weight 2, gradient 4, f32 copy and two moments 12
// Beside the logits that the head keeps: an f32 copy and its gradient.
constexpr double bytes_of_logit = 8;

using CsvRow = std::map<std::string, std::string>;

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream stream(line);
  for (std::string cell; std::getline(stream, cell, ',');) cells.push_back(cell);
  return cells;
}

std::vector<CsvRow> read_csv(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) throw InvalidInput(path + " is no table; give one with a line of names");
  const std::vector<std::string> names = cells_of(line);
  std::vector<CsvRow> rows;
  while (std::getline(file, line)) {
    const std::vector<std::string> cells = cells_of(line);
    if (cells.size() != names.size())
      throw InvalidInput(fmt::format("{}: a line of {} cells; give {}", path, cells.size(), names.size()));
    CsvRow& row = rows.emplace_back();
    for (std::size_t i = 0; i < names.size(); ++i) row[names[i]] = cells[i];
  }
  return rows;
}

MegatronRow row_of(const CsvRow& csv) {
  const auto number = [&](const char* name) { return std::stoi(csv.at(name)); };
  const bool scheme = csv.contains("scheme");
  MegatronRow row;
  row.name = scheme ? csv.at("billion_parameters") + "B" : csv.at("model");
  row.shares = scheme && csv.at("scheme") == "ZeRO-3";
  const int hidden = number("hidden");
  row.shape = {hidden, number("heads"), 4 * hidden, 2048, 51200, 2, false};
  row.layers = number("layers");
  row.devices = number("devices");
  row.batch = number("batch_samples");
  row.way = {number("tensor"), number("pipeline"), 1, number("micro_batch_samples")};
  row.teraflops = std::stod(csv.at("teraflops_per_device"));
  if (const int chunk = scheme ? 0 : number("layers_per_virtual_stage"); chunk > 0)
    row.way.virtual_stages = row.layers / row.way.stages / chunk;
  return row;
}

Machine machine_of(const MegatronConstants& constants) {
  Machine machine;
  machine.flops_per_second = constants.products * a100_flops;
  machine.device_bytes_per_second = constants.memory * a100_bytes;
  return machine;
}

// Tensor groups stay in a node. Both levels of groups of shares are given by it, too.
Cluster cluster_of_a100(const MegatronRow& row, const MegatronConstants& constants,
                        const MegatronLinks& links) {
  Cluster cluster;
  cluster.devices_per_node = std::min(node_devices, row.devices);
  cluster.nodes = row.devices / cluster.devices_per_node;
  cluster.machine = machine_of(constants);
  cluster.inside.link = {links.inside, inside_latency, true};
  cluster.network = {links.between, node_devices * links.between, 0, PeerPath::apart};
  return cluster;
}

// Two forwards, of which one is a replay, and a backward of one block, with tensor groups' collectives.
double block_seconds(const MegatronRow& row, const MegatronWay& way, const Cluster& cluster) {
  const LayerSpread spread{1, way.split, way.micro_samples, true, WeightKeeping::whole};
  const LayerCost cost = layer_cost(row.shape, LayerKind::block, spread, {}, cluster);
  return cost.forward_seconds + cost.backward_seconds;
}

// Products of the head, forward and backward.
double head_seconds(const MegatronRow& row, const MegatronWay& way, const Machine& machine) {
  const LayerWork work = forward_work(row.shape, LayerKind::head, way.micro_samples, way.split);
  return 3 * compute_seconds({work.flops, 0}, machine);
}

// What one chunk and its neighbour send each other for a micro-batch. Gathers behind a send take no latency.
double chunk_sends(const MegatronRow& row, const MegatronWay& way, const MegatronLinks& links) {
  if (way.stages == 1) return 0;
  return 2 * send_seconds(row.shape, way.micro_samples, way.split, {links.between, send_latency, true},
                          PeerCurve{{links.inside, 0, true}});
}

// Products' weights of so many blocks, and a table, on each device. Biases and norms are left out.
double device_parameters(const MegatronRow& row, double blocks, double tables, int split) {
  const double h = static_cast<double>(row.shape.hidden);
  return (12 * blocks * h * h + tables * static_cast<double>(row.shape.vocabulary) * h) / split;
}

double update_seconds(const MegatronRow& row, double parameters, const Machine& machine) {
  return compute_seconds({0, update_bytes(parameters, row.shape.element_bytes, {})}, machine);
}

// Chunks of micro-batches that a stage has in flight at most, `behind` stages before the last one (the
// paper's section 2.2 and its program's warm-up).
double chunks_in_flight(const MegatronRow& row, const MegatronWay& way, int behind) {
  const std::int64_t all = micro_batches_of(row, way) * way.virtual_stages;
  const std::int64_t warm_up =
      way.virtual_stages == 1 ? behind : 2 * behind + (way.virtual_stages - 1) * way.stages;
  return static_cast<double>(std::min(all, warm_up + 1));
}

double stage_bytes(const MegatronRow& row, const MegatronWay& way, int stage) {
  const bool last = stage + 1 == way.stages;
  const double blocks = static_cast<double>(row.layers) / way.stages;
  const double chunks = chunks_in_flight(row, way, way.stages - 1 - stage);
  const auto kept = [&](LayerKind kind, bool rebuilt) {
    return activation_bytes(row.shape, kind, way.micro_samples, way.split, rebuilt);
  };
  double bytes = bytes_of_parameter * device_parameters(row, blocks, stage == 0 || last ? 1 : 0, way.split);
  bytes += chunks * blocks / way.virtual_stages * kept(LayerKind::block, true);
  const double logits =
      static_cast<double>(way.micro_samples * row.shape.sequence * row.shape.vocabulary) / way.split;
  const double head = last ? kept(LayerKind::head, false) + bytes_of_logit * logits : 0;
  return bytes + std::max(kept(LayerKind::block, false), head);
}

}  // namespace

std::vector<MegatronRow> read_megatron_table(const std::string& path) {
  std::vector<MegatronRow> rows;
  for (const CsvRow& csv : read_csv(path)) rows.push_back(row_of(csv));
  return rows;
}

std::vector<MegatronRow> megatron_rows(const std::vector<MegatronRow>& rows, bool shares) {
  std::vector<MegatronRow> of;
  std::copy_if(rows.begin(), rows.end(), std::back_inserter(of),
               [&](const MegatronRow& row) { return row.shares == shares; });
  return of;
}

int parts_of(const MegatronRow& row, const MegatronWay& way) {
  return row.devices / (way.split * way.stages);
}

std::int64_t micro_batches_of(const MegatronRow& row, const MegatronWay& way) {
  return row.batch / (parts_of(row, way) * way.micro_samples);
}

double megatron_seconds(const MegatronRow& row, const MegatronWay& way, const MegatronConstants& constants,
                        const MegatronLinks& links) {
  const Cluster cluster = cluster_of_a100(row, constants, links);
  const double stage = row.layers * block_seconds(row, way, cluster) / way.stages +
                       way.virtual_stages * chunk_sends(row, way, links);
  const double head = head_seconds(row, way, cluster.machine);
  const double parameters =
      device_parameters(row, static_cast<double>(row.layers) / way.stages, 1, way.split);
  const PeerCurve between{{links.between, 0, true}};
  return static_cast<double>(micro_batches_of(row, way)) * (stage + head) +
         (way.stages - 1.0) / way.virtual_stages * stage +
         exchange_and_gather_seconds(row.shape.element_bytes * parameters, parts_of(row, way), between) +
         update_seconds(row, parameters, cluster.machine);
}

double teraflops_of(const MegatronRow& row, double step_seconds) {
  const LayerWork block = forward_work(row.shape, LayerKind::block, row.batch, 1);
  const LayerWork head = forward_work(row.shape, LayerKind::head, row.batch, 1);
  return (4 * row.layers * block.flops + 3 * head.flops) / step_seconds / row.devices / 1e12;
}

MegatronConstants fit_megatron(const std::vector<MegatronRow>& rows, const MegatronLinks& links) {
  constexpr int rounds = 30;
  constexpr double step = 1e-6;
  std::array<double, 2> logarithms{};
  const auto miss = [&](const MegatronRow& row, double products, double memory) {
    const double seconds = megatron_seconds(row, row.way, {std::exp(products), std::exp(memory)}, links);
    return std::log(teraflops_of(row, seconds) / row.teraflops);
  };
  for (int round = 0; round < rounds; ++round) {
    auto& [products, memory] = logarithms;
    double aa = 0, ab = 0, bb = 0, a = 0, b = 0;
    for (const MegatronRow& row : rows) {
      const double at = miss(row, products, memory);
      const double by_products = (miss(row, products + step, memory) - at) / step;
      const double by_memory = (miss(row, products, memory + step) - at) / step;
      aa += by_products * by_products;
      ab += by_products * by_memory;
      bb += by_memory * by_memory;
      a += by_products * at;
      b += by_memory * at;
    }
    const double determinant = aa * bb - ab * ab;
    products -= (bb * a - ab * b) / determinant;
    memory -= (aa * b - ab * a) / determinant;
  }
  return {std::exp(logarithms[0]), std::exp(logarithms[1])};
}

double largest_miss(const std::vector<MegatronRow>& rows, const MegatronConstants& constants,
                    const MegatronLinks& links) {
  double largest = 0;
  for (const MegatronRow& row : rows) {
    const double predicted = teraflops_of(row, megatron_seconds(row, row.way, constants, links));
    largest = std::max(largest, std::abs(predicted / row.teraflops - 1));
  }
  return largest;
}

SharesSeconds shares_seconds(const MegatronRow& row, const MegatronConstants& constants) {
  const LayerSpread spread{row.devices, 1, row.way.micro_samples, true, WeightKeeping::shares};
  const Cluster cluster = cluster_of_a100(row, constants, {});
  Cluster flat = cluster;
  flat.nodes = row.devices;
  flat.devices_per_node = 1;
  const double micro_batches = static_cast<double>(micro_batches_of(row, row.way));
  const auto collectives = layer_collectives(row.shape, LayerKind::block, spread);
  const auto all = [&](const Cluster& on) {
    return micro_batches * row.layers *
           (collectives_seconds(collectives, Phase::forward, spread, on) +
            collectives_seconds(collectives, Phase::backward, spread, on));
  };
  SharesSeconds seconds{0, all(flat), all(cluster)};
  seconds.compute = micro_batches * (row.layers * block_seconds(row, row.way, cluster) +
                                     head_seconds(row, row.way, cluster.machine)) +
                    update_seconds(row, device_parameters(row, row.layers, 1, row.devices), cluster.machine);
  return seconds;
}

double megatron_bytes(const MegatronRow& row, const MegatronWay& way) {
  return std::max(stage_bytes(row, way, 0), stage_bytes(row, way, way.stages - 1));
}

std::optional<MegatronWay> best_megatron_way(const MegatronRow& row, const MegatronConstants& constants,
                                             double memory) {
  std::optional<MegatronWay> best;
  double least = std::numeric_limits<double>::infinity();
  const auto judge = [&](const MegatronWay& way) {
    const std::int64_t micro_batches = micro_batches_of(row, way);
    if (way.virtual_stages > 1 && (way.stages == 1 || micro_batches % way.stages != 0)) return;
    if (megatron_bytes(row, way) > memory) return;
    const double seconds = megatron_seconds(row, way, constants);
    if (seconds >= least) return;
    least = seconds;
    best = way;
  };
  for (int split = 1; split <= node_devices; split *= 2) {
    for (int stages = 1; stages <= row.layers; ++stages) {
      if (row.shape.heads % split != 0 || row.layers % stages != 0 || row.devices % (split * stages) != 0)
        continue;
      const int layers = row.layers / stages, parts = row.devices / (split * stages);
      for (std::int64_t samples = 1; samples * parts <= row.batch; ++samples) {
        if (row.batch % (samples * parts) != 0) continue;
        for (int chunks = 1; chunks <= layers; ++chunks)
          if (layers % chunks == 0) judge({split, stages, chunks, samples});
      }
    }
  }
  return best;
}

}  // namespace stowage::testing
