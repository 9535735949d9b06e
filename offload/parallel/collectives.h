// What collectives between devices take: gathers and exchanges of shares, inside a node and between nodes.
#pragma once

#include <cstdint>
#include <vector>

#include "stowage/machine_file.h"

namespace stowage {

// A gather makes a whole of the shares that the devices of a group have: each receives all but its own. An
// exchange adds up what they have of each share: each receives its own share from all others. Both together
// are an all-reduce.
enum class Collective : std::uint8_t { gather, exchange };

// How long a device receives so many bytes from its peers, all devices of a group at once.
struct PeerCurve {
  Link link;
  // Measured times by bytes, as PeerDevices has them; empty: by the link. Below the first and between two the
  // curve is straight, above the last it goes on at the last rate.
  std::vector<CopySample> gathers{}, exchanges{};

  double seconds(Collective collective, double received_bytes) const;
};

// Devices at equal distances: `devices` of them, each `stride` numbers behind the one before.
struct DeviceGroup {
  int devices = 1;
  int stride = 1;
};

// Nodes alike. Devices are numbered node by node.
struct Cluster {
  int nodes = 1;
  int devices_per_node = 1;
  PeerCurve inside;
  Link between;  // of one device, to other nodes
  double node_bytes_per_second =
      0;  // of all devices of a node together, to other nodes; 0: as much as they can

  int devices() const { return nodes * devices_per_node; }
  // Returns a device's link to other nodes while all devices of its node use theirs.
  Link shared_between() const;
};

// Returns one node of the file's machine with all its devices at work in type `work`, as machine_for shares
// the link and host memory among them. Throws InvalidInput as machine_for does.
Cluster cluster_of(const MachineFile& file, DataType work);

// Returns the most members of a group that one node has. Groups of a grid begin at a node's first device, or
// lie within it.
int members_in_a_node(const Cluster& cluster, DeviceGroup group);

// Returns the seconds of a gather or an exchange of `bytes`, the size of the whole, among devices that
// receive at one curve: (n - 1) / n of the bytes.
double one_level_seconds(const PeerCurve& curve, Collective collective, double bytes, int devices);

// Returns the same among the devices of a group. A group that leaves its node works on two levels, as NCCL's
// trees and rings do: an exchange inside each node, then one between the nodes of each device's share of
// that; a gather the other way round.
double collective_seconds(const Cluster& cluster, Collective collective, double bytes, DeviceGroup group);

// Groups of a grid of `stages` x `parts` x `split` devices. The devices that share a product are neighbours;
// then come the parts of the batch, then the stages (Narayanan et al., SC 2021, section 3.2).
inline DeviceGroup split_group(int split) { return {split, 1}; }
inline DeviceGroup parts_group(int parts, int split) { return {parts, split}; }

}  // namespace stowage
