// ParallelCosts <-> JSON. The reader trusts nothing: every number is checked where it is read, and
// check_costs judges the whole.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "offload/parallel/costs.h"
#include "src/graph/json_field.h"
#include "stowage/error.h"

namespace stowage {
namespace {

using CostsJson = nlohmann::ordered_json;

constexpr std::string_view costs_format = "stowage.parallel_costs";
constexpr std::uint64_t costs_version = 1;

constexpr std::array objectives{ParallelObjective::step, ParallelObjective::largest_stage};
constexpr std::array orders{PipelineOrder::one_f_one_b, PipelineOrder::gpipe};
constexpr std::array in_flights{InFlight::stages, InFlight::parts};
constexpr std::array sendings{Sending::beside, Sending::within};
constexpr std::array carriers{Links::devices, Links::parts};

// writing

CostsJson variant_json(const LayerVariant& variant) {
  CostsJson json{{"name", variant.name},
                 {"parts", variant.parts},
                 {"split", variant.split},
                 {"forward_seconds", variant.forward_seconds},
                 {"backward_seconds", variant.backward_seconds}};
  if (variant.bytes > 0) json["bytes"] = variant.bytes;
  if (variant.bytes_in_flight > 0) json["bytes_in_flight"] = variant.bytes_in_flight;
  if (variant.exchanged_bytes > 0) json["exchanged_bytes"] = variant.exchanged_bytes;
  if (variant.seconds_with_exchange) json["seconds_with_exchange"] = *variant.seconds_with_exchange;
  return json;
}

CostsJson values_json(const ParallelCosts& costs) {
  CostsJson values = CostsJson::array();
  for (const CrossingValue& value : costs.values) {
    CostsJson json{{"from", costs.layers[static_cast<std::size_t>(value.from)].name},
                   {"to", costs.layers[static_cast<std::size_t>(value.to)].name},
                   {"bytes", value.bytes}};
    if (value.entering > 0) json["entering"] = value.entering;
    if (value.leaving > 0) json["leaving"] = value.leaving;
    values.push_back(std::move(json));
  }
  return values;
}

// reading

const JsonSource& costs_source() {
  static const JsonSource source{"parallel costs", "docs/parallel.md has the fields", "the text"};
  return source;
}

std::int64_t whole_between(const JsonField& field, std::int64_t least, std::int64_t most) {
  const std::int64_t value = field.integer();
  if (value < least || value > most) field.fail(fmt::format("a whole number from {} to {}", least, most));
  return value;
}

Bytes bytes_of_field(const JsonField& field, Bytes most = most_layer_bytes) {
  return static_cast<Bytes>(whole_between(field, 0, static_cast<std::int64_t>(most)));
}

double seconds_of_field(const JsonField& field) {
  const double seconds = field.number();
  if (!(seconds >= 0 && seconds <= most_layer_seconds))
    field.fail(fmt::format("seconds from 0 to {}", most_layer_seconds));
  return seconds;
}

double rate_of_field(const JsonField& field) {
  const double rate = field.number();
  if (!(rate >= least_rate && rate <= most_rate))
    field.fail(fmt::format("a rate from {} to {}", least_rate, most_rate));
  return rate;
}

std::string name_of_field(const JsonField& field) {
  std::string name = field.text();
  if (name.empty() || name.size() > most_name_characters)
    field.fail(fmt::format("a name of 1 to {} characters", most_name_characters));
  return name;
}

template <class Enum, std::size_t count>
Enum word_or(const JsonField& parent, const char* name, const std::array<Enum, count>& words,
             Enum otherwise) {
  const auto field = parent.optional_member(name);
  return field ? field->one_of(words) : otherwise;
}

// "devices" alone are parts; otherwise "parts" and "split".
void read_spread(const JsonField& field, LayerVariant& variant) {
  const auto count = [&](const char* name) -> std::optional<int> {
    const auto member = field.optional_member(name);
    if (!member) return {};
    return static_cast<int>(whole_between(*member, 1, most_parallel_devices));
  };
  const std::optional<int> devices = count("devices"), parts = count("parts"), split = count("split");
  if (!devices && !parts && !split) field.refuse("has no 'devices', and no 'parts' or 'split'");
  variant.split = split.value_or(1);
  variant.parts = parts.value_or(devices && *devices % variant.split == 0 ? *devices / variant.split : 1);
  if (static_cast<std::int64_t>(variant.parts) * variant.split > most_parallel_devices)
    field.refuse(fmt::format("takes more than {} devices", most_parallel_devices));
  if (devices && variant.devices() != *devices)
    field.refuse("has 'devices' that are not 'parts' times 'split'");
}

LayerVariant read_variant(const JsonField& field) {
  field.require_members({"name", "devices", "parts", "split", "forward_seconds", "backward_seconds", "bytes",
                         "bytes_in_flight", "exchanged_bytes", "seconds_with_exchange"});
  LayerVariant variant;
  variant.name = name_of_field(field.member("name"));
  read_spread(field, variant);
  variant.forward_seconds = seconds_of_field(field.member("forward_seconds"));
  variant.backward_seconds = seconds_of_field(field.member("backward_seconds"));
  if (const auto bytes = field.optional_member("bytes")) variant.bytes = bytes_of_field(*bytes);
  if (const auto bytes = field.optional_member("bytes_in_flight"))
    variant.bytes_in_flight = bytes_of_field(*bytes);
  if (const auto bytes = field.optional_member("exchanged_bytes"))
    variant.exchanged_bytes = bytes_of_field(*bytes);
  if (const auto seconds = field.optional_member("seconds_with_exchange"))
    variant.seconds_with_exchange = seconds_of_field(*seconds);
  return variant;
}

void read_layers(const JsonField& root, ParallelCosts& costs) {
  std::size_t variants = 0;
  const JsonField layers = root.member("layers");
  layers.list(static_cast<std::size_t>(most_parallel_layers), [&](const JsonField& field) {
    field.require_members({"name", "repeat", "variants"});
    ParallelLayer layer;
    layer.name = name_of_field(field.member("name"));
    layer.variants = field.member("variants").list(most_variants, read_variant);
    const auto repeat = field.optional_member("repeat");
    const std::int64_t times = repeat ? whole_between(*repeat, 1, most_parallel_layers) : 1;
    variants += layer.variants.size() * static_cast<std::size_t>(times);
    if (costs.layers.size() + static_cast<std::size_t>(times) >
        static_cast<std::size_t>(most_parallel_layers))
      layers.refuse(fmt::format("has more than {} layers", most_parallel_layers));
    if (variants > most_variants) layers.refuse(fmt::format("has more than {} variants", most_variants));
    for (std::int64_t i = 0; i < times; ++i) {
      costs.layers.push_back(layer);
      if (repeat) costs.layers.back().name += fmt::format(".{}", i);
    }
    return 0;
  });
}

// Leaves out variants whose parts do not divide a micro-batch's samples.
void drop_uneven_parts(ParallelCosts& costs) {
  if (costs.batch <= 0 || costs.batch % costs.micro_batches != 0) return;
  const std::int64_t samples = costs.batch / costs.micro_batches;
  for (ParallelLayer& layer : costs.layers) {
    const bool had_some = !layer.variants.empty();
    std::erase_if(layer.variants, [&](const LayerVariant& variant) { return samples % variant.parts != 0; });
    if (had_some && layer.variants.empty()) {
      throw InvalidInput(
          fmt::format("parallel costs: layer {} has no variant whose parts divide the {} samples of a "
                      "micro-batch ('batch' {} by "
                      "'micro_batches' {}); give one, or another batch",
                      in_quotes(layer.name), samples, costs.batch, costs.micro_batches));
    }
  }
}

void read_link(const JsonField& field, ParallelCosts& costs) {
  field.require_members({"bytes_per_second", "latency_seconds", "sends", "carried_by"});
  costs.link.bytes_per_second = rate_of_field(field.member("bytes_per_second"));
  const auto latency = field.optional_member("latency_seconds");
  costs.link.latency_seconds = latency ? seconds_of_field(*latency) : 0;
  costs.sending = word_or(field, "sends", sendings, Sending::beside);
  costs.links = word_or(field, "carried_by", carriers, Links::devices);
}

void read_crossing(const JsonField& root, ParallelCosts& costs) {
  if (const auto cuts = root.optional_member("cut_bytes")) {
    if (cuts->is_list()) {
      costs.cut_bytes = cuts->list(static_cast<std::size_t>(most_parallel_layers),
                                   [](const JsonField& field) { return bytes_of_field(field); });
      if (costs.cut_bytes.size() + 1 != costs.layers.size()) {
        cuts->refuse(
            fmt::format("has {} numbers, and {} layers have {} cuts; give one for each cut, or one for all",
                        costs.cut_bytes.size(), costs.layers.size(), costs.layers.size() - 1));
      }
    } else {
      costs.cut_bytes.assign(costs.layers.size() - 1, bytes_of_field(*cuts));
    }
  }
  const auto values = root.optional_member("values");
  if (!values) return;
  std::map<std::string, int> numbers;
  for (std::size_t i = 0; i < costs.layers.size(); ++i) numbers[costs.layers[i].name] = static_cast<int>(i);
  costs.values = values->list(most_crossing_values, [&](const JsonField& field) {
    field.require_members({"from", "to", "bytes", "entering", "leaving"});
    const auto layer = [&](const char* name) {
      const JsonField end = field.member(name);
      const auto found = numbers.find(end.text());
      if (found == numbers.end()) end.fail("the name of a layer");
      return found->second;
    };
    CrossingValue value{layer("from"), layer("to"), bytes_of_field(field.member("bytes")), 0, 0};
    if (value.from >= value.to) field.refuse("does not go from a layer to a later one");
    if (const auto bytes = field.optional_member("entering")) value.entering = bytes_of_field(*bytes);
    if (const auto bytes = field.optional_member("leaving")) value.leaving = bytes_of_field(*bytes);
    return value;
  });
}

void read_changes(const JsonField& root, ParallelCosts& costs) {
  const auto changes = root.optional_member("changes");
  if (!changes) return;
  std::set<std::string> kept;
  for (const ParallelLayer& layer : costs.layers) {
    for (const LayerVariant& variant : layer.variants) kept.insert(variant.name);
  }
  std::set<std::string> named = kept;  // also by variants that an uneven batch left out
  for (auto& layer :
       root.member("layers").list(static_cast<std::size_t>(most_parallel_layers), [](const JsonField& field) {
         return field.member("variants").list(most_variants, [](const JsonField& variant) {
           return variant.member("name").text();
         });
       })) {
    named.insert(layer.begin(), layer.end());
  }
  changes->list(most_changes, [&](const JsonField& field) {
    field.require_members({"from", "to", "seconds"});
    VariantChange change{field.member("from").text(), field.member("to").text(),
                         seconds_of_field(field.member("seconds"))};
    for (const char* end : {"from", "to"}) {
      if (!named.contains(field.member(end).text()))
        field.member(end).fail("the name of a variant of some layer");
    }
    if (kept.contains(change.from) && kept.contains(change.to)) costs.changes.push_back(std::move(change));
    return 0;
  });
}

}  // namespace

std::string to_json(const ParallelCosts& costs) {
  check_costs(costs);
  CostsJson json{{"format", costs_format}, {"version", costs_version}, {"devices", costs.devices}};
  if (costs.use_all_devices) json["use_all_devices"] = true;
  if (costs.batch > 0) json["batch"] = costs.batch;
  json["micro_batches"] = costs.micro_batches;
  if (costs.memory != unlimited) json["memory_bytes"] = costs.memory;
  json["objective"] = to_string(costs.objective);
  json["schedule"] = to_string(costs.order);
  json["in_flight"] = to_string(costs.in_flight);
  json["link"] = {{"bytes_per_second", costs.link.bytes_per_second},
                  {"latency_seconds", costs.link.latency_seconds},
                  {"sends", to_string(costs.sending)},
                  {"carried_by", to_string(costs.links)}};
  if (costs.exchange_bytes_per_second > 0)
    json["exchange_bytes_per_second"] = costs.exchange_bytes_per_second;
  CostsJson layers = CostsJson::array();
  for (const ParallelLayer& layer : costs.layers) {
    CostsJson variants = CostsJson::array();
    for (const LayerVariant& variant : layer.variants) variants.push_back(variant_json(variant));
    layers.push_back({{"name", layer.name}, {"variants", std::move(variants)}});
  }
  json["layers"] = std::move(layers);
  if (!costs.cut_bytes.empty()) json["cut_bytes"] = costs.cut_bytes;
  if (!costs.values.empty()) json["values"] = values_json(costs);
  CostsJson changes = CostsJson::array();
  for (const VariantChange& change : costs.changes)
    changes.push_back({{"from", change.from}, {"to", change.to}, {"seconds", change.seconds}});
  if (!changes.empty()) json["changes"] = std::move(changes);
  return json.dump(1) + '\n';
}

ParallelCosts parallel_costs_from_json(std::string_view text) {
  const nlohmann::json json = parse_json(text, costs_source());
  const JsonField root(json, costs_source());
  root.require_members({"format", "version", "devices", "use_all_devices", "batch", "micro_batches",
                        "memory_bytes", "objective", "schedule", "in_flight", "link",
                        "exchange_bytes_per_second", "layers", "cut_bytes", "values", "changes"});
  if (root.member("format").text() != costs_format)
    root.member("format").fail(fmt::format("\"{}\"", costs_format));
  whole_between(root.member("version"), costs_version, costs_version);
  ParallelCosts costs;
  costs.devices = static_cast<int>(whole_between(root.member("devices"), 1, most_parallel_devices));
  if (const auto all = root.optional_member("use_all_devices")) costs.use_all_devices = all->boolean();
  if (const auto batch = root.optional_member("batch")) costs.batch = whole_between(*batch, 1, most_batch);
  costs.micro_batches = whole_between(root.member("micro_batches"), 1, most_micro_batches);
  if (const auto memory = root.optional_member("memory_bytes"))
    costs.memory = static_cast<Bytes>(whole_between(*memory, 1, static_cast<std::int64_t>(most_memory)));
  costs.objective = word_or(root, "objective", objectives, ParallelObjective::step);
  costs.order = word_or(root, "schedule", orders, PipelineOrder::one_f_one_b);
  costs.in_flight = word_or(root, "in_flight", in_flights, InFlight::stages);
  costs.link.latency_seconds = 0;
  const auto link = root.optional_member("link");
  if (link) read_link(*link, costs);
  if (const auto rate = root.optional_member("exchange_bytes_per_second"))
    costs.exchange_bytes_per_second = rate_of_field(*rate);
  read_layers(root, costs);
  if (costs.layers.empty()) root.member("layers").fail("a list of at least one layer");
  check_costs(costs);  // the layers, before other fields name them
  read_crossing(root, costs);
  drop_uneven_parts(costs);
  read_changes(root, costs);
  if (!link) {
    const auto crosses = [](Bytes bytes) { return bytes > 0; };
    if (!costs.values.empty() || std::any_of(costs.cut_bytes.begin(), costs.cut_bytes.end(), crosses))
      root.refuse("has bytes over cuts and no 'link'");
  }
  check_costs(costs);
  return costs;
}

}  // namespace stowage
