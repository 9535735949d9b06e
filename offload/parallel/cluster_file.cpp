#include "offload/parallel/cluster_file.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "offload/parallel/costs.h"
#include "src/graph/json_field.h"

namespace stowage {
namespace {

constexpr std::string_view cluster_format = "stowage.cluster";
constexpr std::int64_t cluster_version = 1;
constexpr double most_watts = 1e6, most_latency_seconds = 1;
constexpr int most_devices_of_node = 64;

// Names by enumerator of PeerPath.
constexpr std::array<std::string_view, 3> path_names{"apart", "link", "host_memory"};

const JsonSource& cluster_source() {
  static const JsonSource source{"cluster", "docs/parallel.md has the fields", "the text"};
  return source;
}

int count_of(const JsonField& field, int most) {
  const std::int64_t value = field.integer();
  if (value < 1 || value > most) field.fail(fmt::format("a whole number from 1 to {}", most));
  return static_cast<int>(value);
}

double number_between(const JsonField& field, double least, double most) {
  const double value = field.number();
  if (!(value >= least && value <= most)) field.fail(fmt::format("a number from {} to {}", least, most));
  return value;
}

Network read_network(const JsonField& field) {
  field.require_members({"device_bytes_per_second", "node_bytes_per_second", "latency_seconds", "path"});
  Network network;
  network.device_bytes_per_second =
      number_between(field.member("device_bytes_per_second"), least_rate, most_rate);
  network.node_bytes_per_second = network.device_bytes_per_second;
  if (const auto rate = field.optional_member("node_bytes_per_second"))
    network.node_bytes_per_second = number_between(*rate, least_rate, most_rate);
  if (const auto latency = field.optional_member("latency_seconds"))
    network.latency_seconds = number_between(*latency, 0, most_latency_seconds);
  if (const auto path = field.optional_member("path")) {
    const std::string name = path->text();
    const auto* const found = std::find(path_names.begin(), path_names.end(), name);
    if (found == path_names.end()) path->fail("\"apart\", \"link\" or \"host_memory\"");
    network.path = static_cast<PeerPath>(found - path_names.begin());
  }
  return network;
}

ClusterFile read_cluster(const JsonField& field) {
  field.require_members({"format", "version", "nodes", "machine", "devices_per_node", "network",
                         "watts_per_device", "watts_per_node"});
  if (field.member("format").text() != cluster_format)
    field.member("format").fail(fmt::format("\"{}\"", cluster_format));
  if (field.member("version").integer() != cluster_version)
    field.member("version").fail(fmt::format("{}, which this program reads", cluster_version));
  ClusterFile file;
  file.nodes = count_of(field.member("nodes"), most_cluster_nodes);
  file.machine = field.member("machine").text();
  if (file.machine.empty() || file.machine.size() > most_name_characters)
    field.member("machine").fail("the name of a machine, or the path of its file");
  if (const auto devices = field.optional_member("devices_per_node"))
    file.devices_per_node = count_of(*devices, most_devices_of_node);
  if (const auto network = field.optional_member("network"))
    file.network = read_network(*network);
  else if (file.nodes > 1)
    field.refuse("has several nodes and no 'network'");
  if (const auto watts = field.optional_member("watts_per_device"))
    file.watts_per_device = number_between(*watts, 0, most_watts);
  if (const auto watts = field.optional_member("watts_per_node"))
    file.watts_per_node = number_between(*watts, 0, most_watts);
  return file;
}

}  // namespace

std::string to_json(const ClusterFile& file) {
  nlohmann::ordered_json json{{"format", cluster_format},
                              {"version", cluster_version},
                              {"nodes", file.nodes},
                              {"machine", file.machine}};
  if (file.devices_per_node) json["devices_per_node"] = *file.devices_per_node;
  json["network"] = {{"device_bytes_per_second", file.network.device_bytes_per_second},
                     {"node_bytes_per_second", file.network.node_bytes_per_second},
                     {"latency_seconds", file.network.latency_seconds},
                     {"path", path_names.at(static_cast<std::size_t>(file.network.path))}};
  if (file.watts_per_device > 0) json["watts_per_device"] = file.watts_per_device;
  if (file.watts_per_node > 0) json["watts_per_node"] = file.watts_per_node;
  std::string text = json.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  cluster_from_json(text);
  return text;
}

ClusterFile cluster_from_json(std::string_view text) {
  const nlohmann::json json = parse_json(text, cluster_source());
  return read_cluster({json, cluster_source()});
}

int devices_of_node(const MachineFile& machine) { return machine.peers ? machine.peers->devices : 1; }

}  // namespace stowage
