#include "offload/parallel/collectives.h"

#include <algorithm>

namespace stowage {

double PeerCurve::seconds(Collective collective, double received_bytes) const {
  const std::vector<CopySample>& samples = collective == Collective::gather ? gathers : exchanges;
  if (received_bytes <= 0) return 0;
  if (samples.empty()) return link.latency_seconds + received_bytes / link.bytes_per_second;
  const auto above = std::find_if(samples.begin(), samples.end(), [&](const CopySample& sample) {
    return static_cast<double>(sample.bytes) >= received_bytes;
  });
  const auto bytes = [](const CopySample& sample) { return static_cast<double>(sample.bytes); };
  if (above == samples.begin()) return above->seconds;  // the latency is most of it
  if (above == samples.end()) return samples.back().seconds * received_bytes / bytes(samples.back());
  const CopySample& low = *std::prev(above);
  const double share = (received_bytes - bytes(low)) / (bytes(*above) - bytes(low));
  return low.seconds + share * (above->seconds - low.seconds);
}

Link Cluster::shared_between() const {
  Link link = between;
  if (node_bytes_per_second > 0)
    link.bytes_per_second = std::min(link.bytes_per_second, node_bytes_per_second / devices_per_node);
  return link;
}

Cluster cluster_of(const MachineFile& file, DataType work) {
  Cluster cluster;
  if (!file.peers) return cluster;
  cluster.devices_per_node = file.peers->devices;
  cluster.inside = {machine_for(file, work, file.peers->devices).peer, file.peers->gathers,
                    file.peers->exchanges};
  return cluster;
}

int members_in_a_node(const Cluster& cluster, DeviceGroup group) {
  return std::clamp(cluster.devices_per_node / group.stride, 1, group.devices);
}

double one_level_seconds(const PeerCurve& curve, Collective collective, double bytes, int devices) {
  return curve.seconds(collective, bytes * (devices - 1) / devices);
}

double collective_seconds(const Cluster& cluster, Collective collective, double bytes, DeviceGroup group) {
  const int inside = members_in_a_node(cluster, group);
  const int nodes = (group.devices + inside - 1) / inside;
  const PeerCurve between{cluster.shared_between()};
  return one_level_seconds(cluster.inside, collective, bytes, inside) +
         one_level_seconds(between, collective, bytes / inside, nodes);
}

}  // namespace stowage
