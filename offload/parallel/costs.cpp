#include "offload/parallel/costs.h"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <set>

#include "src/base/printable.h"
#include "stowage/error.h"

namespace stowage {

std::string_view to_string(ParallelObjective objective) {
  return objective == ParallelObjective::step ? "step" : "largest_stage";
}
std::string_view to_string(PipelineOrder order) { return order == PipelineOrder::gpipe ? "gpipe" : "1f1b"; }
std::string_view to_string(InFlight in_flight) { return in_flight == InFlight::parts ? "parts" : "stages"; }
std::string_view to_string(Sending sending) { return sending == Sending::within ? "within" : "beside"; }
std::string_view to_string(Links links) { return links == Links::parts ? "parts" : "devices"; }

namespace {

[[noreturn]] void refuse_costs(const std::string& what) { throw InvalidInput("parallel costs: " + what); }

void require_seconds(double seconds, const std::string& where) {
  if (seconds >= 0 && seconds <= most_layer_seconds) return;
  refuse_costs(fmt::format("{} is {}; give seconds from 0 to {}", where, seconds, most_layer_seconds));
}

void require_rate(double rate, std::string_view where) {
  if (rate >= least_rate && rate <= most_rate) return;
  refuse_costs(fmt::format("'{}' is {}; give a rate from {} to {}", where, rate, least_rate, most_rate));
}

void require_bytes(Bytes bytes, const std::string& where) {
  if (bytes > most_layer_bytes)
    refuse_costs(fmt::format("{} is {}; give at most {} bytes", where, bytes, most_layer_bytes));
}

void require_name(const std::string& name, std::string_view what) {
  if (name.empty() || name.size() > most_name_characters)
    refuse_costs(fmt::format("a {} has a name of {} characters; give 1 to {}", what, name.size(),
                             most_name_characters));
}

void check_variant(const ParallelCosts& costs, const LayerVariant& variant, const std::string& where) {
  if (variant.parts < 1 || variant.split < 1 || variant.parts > most_parallel_devices ||
      variant.split > most_parallel_devices || variant.devices() > most_parallel_devices) {
    refuse_costs(
        fmt::format("{} takes {} parts x {} devices; give at least 1 of each, and at most {} devices", where,
                    variant.parts, variant.split, most_parallel_devices));
  }
  require_seconds(variant.forward_seconds, where + ": 'forward_seconds'");
  require_seconds(variant.backward_seconds, where + ": 'backward_seconds'");
  require_seconds(variant.seconds_with_exchange.value_or(0), where + ": 'seconds_with_exchange'");
  require_bytes(variant.bytes, where + ": 'bytes'");
  require_bytes(variant.bytes_in_flight, where + ": 'bytes_in_flight'");
  require_bytes(variant.exchanged_bytes, where + ": 'exchanged_bytes'");
  if (variant.exchanged_bytes > 0) require_rate(costs.exchange_bytes_per_second, "exchange_bytes_per_second");
}

void check_layers(const ParallelCosts& costs) {
  if (costs.layers.empty() || costs.layers.size() > static_cast<std::size_t>(most_parallel_layers))
    refuse_costs(
        fmt::format("'layers' has {}; give 1 to {} layers", costs.layers.size(), most_parallel_layers));
  std::set<std::string> names;
  std::size_t variants = 0;
  for (const ParallelLayer& layer : costs.layers) {
    const std::string where = fmt::format("layer \"{}\"", printable(layer.name));
    require_name(layer.name, "layer");
    if (!names.insert(layer.name).second)
      refuse_costs(where + " stands twice; give each layer a name of its own");
    std::set<std::string> own;
    bool fits = false;
    for (const LayerVariant& variant : layer.variants) {
      const std::string here = fmt::format("{}, variant \"{}\"", where, printable(variant.name));
      require_name(variant.name, "variant");
      if (!own.insert(variant.name).second)
        refuse_costs(here + " stands twice; give each variant a name of its own");
      check_variant(costs, variant, here);
      fits = fits || variant.devices() <= costs.devices;
    }
    if (layer.variants.empty()) refuse_costs(where + " has no variant; give one at least");
    if (!fits) {
      refuse_costs(fmt::format("{} has no variant for {} devices or fewer; give one, or more devices", where,
                               costs.devices));
    }
    variants += layer.variants.size();
  }
  if (variants > most_variants)
    refuse_costs(fmt::format("{} variants in all layers; give at most {}", variants, most_variants));
}

void check_crossing(const ParallelCosts& costs) {
  const std::size_t cuts = costs.layers.size() - 1;
  if (!costs.cut_bytes.empty() && costs.cut_bytes.size() != cuts) {
    refuse_costs(fmt::format(
        "'cut_bytes' has {} numbers, and {} layers have {} cuts; give one for each cut, or one for all",
        costs.cut_bytes.size(), costs.layers.size(), cuts));
  }
  for (const Bytes bytes : costs.cut_bytes) require_bytes(bytes, "a number of 'cut_bytes'");
  if (costs.values.size() > most_crossing_values)
    refuse_costs(fmt::format("'values' has {}; give at most {}", costs.values.size(), most_crossing_values));
  for (const CrossingValue& value : costs.values) {
    if (value.from < 0 || value.from >= value.to || static_cast<std::size_t>(value.to) > cuts)
      refuse_costs(fmt::format("a value goes from layer {} to layer {}; give an earlier and a later one",
                               value.from, value.to));
    require_bytes(value.bytes, "'bytes' of a value");
    require_bytes(value.entering, "'entering' of a value");
    require_bytes(value.leaving, "'leaving' of a value");
  }
  require_rate(costs.link.bytes_per_second, "link.bytes_per_second");
  require_seconds(costs.link.latency_seconds, "'link.latency_seconds'");
}

// A stage whose layers differ in parts has no number of parts of its own.
void check_changes(const ParallelCosts& costs) {
  if (costs.changes.size() > most_changes)
    refuse_costs(fmt::format("'changes' has {}; give at most {}", costs.changes.size(), most_changes));
  std::map<std::string, std::set<std::pair<int, int>>> spreads;
  for (const ParallelLayer& layer : costs.layers) {
    for (const LayerVariant& variant : layer.variants)
      spreads[variant.name].insert({variant.parts, variant.split});
  }
  std::set<std::pair<std::string, std::string>> listed;
  for (const VariantChange& change : costs.changes) {
    const std::string where =
        fmt::format("the change from \"{}\" to \"{}\"", printable(change.from), printable(change.to));
    for (const std::string& name : {change.from, change.to}) {
      if (!spreads.contains(name))
        refuse_costs(
            fmt::format("{}: no layer has a variant \"{}\"; give names of variants", where, printable(name)));
    }
    if (!listed.insert({change.from, change.to}).second) refuse_costs(where + " stands twice; give it once");
    require_seconds(change.seconds, where + ": 'seconds'");
    const bool by_parts = costs.links == Links::parts || costs.in_flight == InFlight::parts;
    std::set<std::pair<int, int>> both = spreads[change.from];
    both.insert(spreads[change.to].begin(), spreads[change.to].end());
    if (by_parts && both.size() > 1) {
      refuse_costs(
          where +
          " mixes unlike parts or split in a stage, which then has no parts of its own; let \"devices\" "
          "carry the link and count \"stages\" in flight, or leave the change out");
    }
  }
}

}  // namespace

void check_costs(const ParallelCosts& costs) {
  if (costs.devices < 1 || costs.devices > most_parallel_devices)
    refuse_costs(fmt::format("'devices' is {}; give 1 to {}", costs.devices, most_parallel_devices));
  if (costs.micro_batches < 1 || costs.micro_batches > most_micro_batches)
    refuse_costs(fmt::format("'micro_batches' is {}; give 1 to {}", costs.micro_batches, most_micro_batches));
  if (costs.batch < 0 || costs.batch % costs.micro_batches != 0) {
    refuse_costs(fmt::format("'batch' is {}, which {} micro-batches do not divide; give a multiple",
                             costs.batch, costs.micro_batches));
  }
  if (costs.memory == 0)
    refuse_costs("'memory_bytes' is 0, in which nothing fits; give at least 1, or leave it out");
  if (costs.exchange_bytes_per_second != 0)
    require_rate(costs.exchange_bytes_per_second, "exchange_bytes_per_second");
  check_layers(costs);
  check_crossing(costs);
  check_changes(costs);
}

}  // namespace stowage
