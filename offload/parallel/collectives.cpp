#include "offload/parallel/collectives.h"

#include <fmt/format.h>

#include <algorithm>

#include "offload/parallel/costs.h"
#include "stowage/error.h"

namespace stowage {
namespace {

// A byte from another node is written to host memory and read there; so is the byte that is sent meanwhile.
constexpr double times_through_host_for_network = 4;

double received_bytes(double whole, int devices) { return whole * (devices - 1) / devices; }

double line(double from, double from_seconds, double to, double to_seconds, double at) {
  return from_seconds + (to_seconds - from_seconds) * (at - from) / (to - from);
}

double measured_seconds(const std::vector<CopySample>& samples, const Link& link, double received) {
  const auto next = std::upper_bound(
      samples.begin(), samples.end(), received,
      [](double bytes, const CopySample& sample) { return bytes < static_cast<double>(sample.bytes); });
  if (next == samples.end()) {
    const CopySample& last = samples.back();
    return last.seconds + (received - static_cast<double>(last.bytes)) / link.bytes_per_second;
  }
  const double to = static_cast<double>(next->bytes);
  if (next == samples.begin())
    return line(0, std::min(link.latency_seconds, next->seconds), to, next->seconds, received);
  const CopySample& before = *std::prev(next);
  return line(static_cast<double>(before.bytes), before.seconds, to, next->seconds, received);
}

std::vector<CopySample> by_size(std::vector<CopySample> samples) {
  std::stable_sort(samples.begin(), samples.end(),
                   [](const CopySample& a, const CopySample& b) { return a.bytes < b.bytes; });
  const auto same = [](const CopySample& a, const CopySample& b) { return a.bytes == b.bytes; };
  samples.erase(std::unique(samples.begin(), samples.end(), same), samples.end());
  return samples;
}

PeerCurve inside_curve(const PeerDevices& peers, const Machine& machine) {
  PeerCurve curve{machine.peer, by_size(peers.gathers), by_size(peers.exchanges)};
  if (machine.peer.bytes_per_second < peers.link.bytes_per_second)
    curve.most_bytes_per_second = machine.peer.bytes_per_second;
  return curve;
}

Network shared_network(Network network, const Machine& machine) {
  double& rate = network.device_bytes_per_second;
  if (network.path == PeerPath::apart) return network;
  rate = std::min({rate, machine.h2d.bytes_per_second, machine.d2h.bytes_per_second,
                   machine.h2d_both_bytes_per_second, machine.d2h_both_bytes_per_second});
  if (network.path == PeerPath::host_memory)
    rate = std::min(rate, machine.host_total_bytes_per_second / times_through_host_for_network);
  return network;
}

[[noreturn]] void refuse_cluster(const char* field, double value, const std::string& remedy) {
  throw InvalidInput(fmt::format("cluster: '{}' is {}; give {}", field, value, remedy));
}

void require_cluster_rate(const char* field, double rate) {
  if (!(rate >= least_rate && rate <= most_rate))
    refuse_cluster(field, rate, fmt::format("a rate from {} to {}", least_rate, most_rate));
}

void require_cluster_seconds(const char* field, double seconds) {
  if (!(seconds >= 0 && seconds <= most_layer_seconds))
    refuse_cluster(field, seconds, fmt::format("seconds from 0 to {}", most_layer_seconds));
}

void check_samples(const char* field, const std::vector<CopySample>& samples) {
  for (std::size_t i = 0; i < samples.size(); ++i) {
    require_cluster_seconds(field, samples[i].seconds);
    if (i > 0 && samples[i].bytes <= samples[i - 1].bytes)
      refuse_cluster(field, static_cast<double>(samples[i].bytes), "points by rising bytes");
  }
}

}  // namespace

double PeerCurve::seconds(CollectiveKind kind, double received) const {
  if (received <= 0) return 0;
  const std::vector<CopySample>& samples = kind == CollectiveKind::gather ? gathers : exchanges;
  const double alone = samples.empty() ? link.latency_seconds + received / link.bytes_per_second
                                       : measured_seconds(samples, link, received);
  return std::max(alone, received / most_bytes_per_second);
}

double collective_seconds(CollectiveKind kind, double bytes, int devices, const PeerCurve& curve) {
  return curve.seconds(kind, received_bytes(bytes, devices));
}

double exchange_and_gather_seconds(double bytes, int devices, const PeerCurve& curve) {
  return collective_seconds(CollectiveKind::exchange, bytes, devices, curve) +
         collective_seconds(CollectiveKind::gather, bytes, devices, curve);
}

Cluster cluster_of(const MachineFile& file, DataType work, int devices_per_node, int nodes,
                   const Network& network) {
  Cluster cluster;
  cluster.nodes = nodes;
  cluster.devices_per_node = devices_per_node;
  cluster.machine = machine_for(file, work, devices_per_node);
  if (devices_per_node > 1) cluster.inside = inside_curve(*file.peers, cluster.machine);
  cluster.network = shared_network(network, cluster.machine);
  check_cluster(cluster);
  return cluster;
}

void check_cluster(const Cluster& cluster) {
  const auto require_count = [](const char* field, int count) {
    if (count < 1 || count > most_parallel_devices)
      refuse_cluster(field, count, fmt::format("1 to {}", most_parallel_devices));
  };
  require_count("nodes", cluster.nodes);
  require_count("devices_per_node", cluster.devices_per_node);
  require_count("nodes * devices_per_node", cluster.devices());
  require_cluster_rate("machine.flops_per_second", cluster.machine.flops_per_second);
  require_cluster_rate("machine.device_bytes_per_second", cluster.machine.device_bytes_per_second);
  require_cluster_rate("inside.link.bytes_per_second", cluster.inside.link.bytes_per_second);
  require_cluster_seconds("inside.link.latency_seconds", cluster.inside.link.latency_seconds);
  if (cluster.inside.most_bytes_per_second != as_alone)
    require_cluster_rate("inside.most_bytes_per_second", cluster.inside.most_bytes_per_second);
  check_samples("inside.gathers", cluster.inside.gathers);
  check_samples("inside.exchanges", cluster.inside.exchanges);
  require_cluster_rate("network.device_bytes_per_second", cluster.network.device_bytes_per_second);
  require_cluster_rate("network.node_bytes_per_second", cluster.network.node_bytes_per_second);
  require_cluster_seconds("network.latency_seconds", cluster.network.latency_seconds);
}

GroupPlace place_of(const DeviceGroup& group, const Cluster& cluster) {
  const int block = group.size * group.stride, node = cluster.devices_per_node;
  if (cluster.nodes == 1 || node % block == 0) return {group.size, 1};
  if (block % node == 0 && node % group.stride == 0) return {node / group.stride, block / node};
  return {1, group.size};
}

Link network_link(const Cluster& cluster, int senders) {
  const Network& network = cluster.network;
  return {std::min(network.device_bytes_per_second, network.node_bytes_per_second / senders),
          network.latency_seconds, true};
}

double collective_seconds(CollectiveKind kind, double bytes, const DeviceGroup& group,
                          const Cluster& cluster) {
  const GroupPlace place = place_of(group, cluster);
  const PeerCurve between{network_link(cluster, cluster.devices_per_node)};
  return collective_seconds(kind, bytes, place.in_node, cluster.inside) +
         collective_seconds(kind, bytes / place.in_node, place.nodes, between);
}

Link link_to_next_stage(const Cluster& cluster, int parts, int split, int stage) {
  const std::int64_t stage_devices = static_cast<std::int64_t>(parts) * split;
  const std::int64_t node = cluster.devices_per_node;
  const bool in_one_node = cluster.nodes == 1 || stage * stage_devices % node + 2 * stage_devices <= node;
  if (in_one_node) return cluster.inside.link;
  return network_link(cluster, static_cast<int>(std::min(stage_devices, node)));
}

}  // namespace stowage
