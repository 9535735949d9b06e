// Seconds of gathers and exchanges among devices of one node or of several, and of sends between stages. Pure
// functions of plain data.
//
// A *gather* makes a whole of the shares that the devices of a group have; an *exchange* brings each device
// what the others have of its share of a sum. Among n devices each device receives (n - 1)/n of the whole,
// gather or exchange, as over a ring (Narayanan et al., "Efficient Large-Scale Language Model Training on GPU
// Clusters Using Megatron-LM", SC 2021, section 3.3.1). An exchange and a gather of the same whole, one after
// the other, are what others call an all-reduce.
//
// Device i of part q of stage s has number (s * parts + q) * split + i, and node number / devices_per_node:
//
//   parts 2, split 4, 8 devices a node     node 0                   node 1
//   devices                                0 1 2 3   4 5 6 7        8 9 10 11   12 13 14 15
//   tensor groups (stride 1)               a a a a   b b b b        c c c  c    d  d  d  d
//   data groups (stride split)             e f g h   e f g h        i j k  l    i  j  k  l
//   stages (neighbours: parts * split on)  0 0 0 0   0 0 0 0        1 1 1  1    1  1  1  1
//
// All groups of one kind work at the same time, on all devices of the cluster. A group therefore has a
// device's part of whatever the devices of a node share.
#pragma once

#include <cstdint>
#include <vector>

#include "stowage/machine.h"
#include "stowage/machine_file.h"

namespace stowage {

enum class CollectiveKind : std::uint8_t { gather, exchange };

// Seconds by the bytes that a device receives from all others of its group together.
struct PeerCurve {
  Link link{};  // where nothing was measured, and beyond the largest measurement
  // Measured points by rising bytes; those of one size are never two. Empty: `link` says the time. A group of
  // some devices takes as long as the measured group of all, at the same received bytes.
  std::vector<CopySample> gathers{}, exchanges{};
  // A device's part of what its bytes share with other devices' bytes, whatever was measured.
  double most_bytes_per_second = as_alone;

  // Returns the seconds in which a device receives `received` bytes: a straight line between measured points
  // and from the latency to the first one, the link's rate beyond the last. 0 for no bytes.
  double seconds(CollectiveKind kind, double received) const;
};

// Returns the seconds of a gather or an exchange of `bytes`, the whole, among `devices` devices on one curve.
// 0 for one device.
double collective_seconds(CollectiveKind kind, double bytes, int devices, const PeerCurve& curve);
// Returns the seconds of an exchange of `bytes` and a gather of as many.
double exchange_and_gather_seconds(double bytes, int devices, const PeerCurve& curve);

// The network between nodes. It carries bytes both ways at the same time.
struct Network {
  double device_bytes_per_second = 12.5e9;  // that one device can send
  double node_bytes_per_second = 12.5e9;    // that all devices of a node can send together
  double latency_seconds = 20e-6;
  // `apart`: the adapter reads and writes device memory. `link`: bytes take of the device's link to the host,
  // both ways at once. `host_memory`: also of host memory, where a sent byte and a received byte are written
  // and read.
  PeerPath path = PeerPath::apart;
};

// Nodes of devices alike, all of which train one model.
struct Cluster {
  int nodes = 1;
  int devices_per_node = 1;
  Machine machine{};   // one device, while all of its node work
  PeerCurve inside{};  // between devices of a node
  Network network{};   // between nodes; not used if there is one

  int devices() const { return nodes * devices_per_node; }
};

// Returns `nodes` nodes of which each is the file's machine with `devices_per_node` devices at work.
// machine_for shares host memory and links among them; a measured gather or exchange is no faster than the
// rate that it leaves. Rates of `network` are lowered to what `network.path` leaves a device. Throws
// InvalidInput as machine_for does, and as check_cluster does.
Cluster cluster_of(const MachineFile& file, DataType work, int devices_per_node, int nodes = 1,
                   const Network& network = {});
// Throws InvalidInput for counts, rates and latencies that no function here can take; names the field.
void check_cluster(const Cluster& cluster);

// Devices first, first + stride, …, of which `first` is less than `stride` behind a multiple of
// size * stride.
struct DeviceGroup {
  int size = 1;
  int stride = 1;
  friend bool operator==(const DeviceGroup&, const DeviceGroup&) = default;
};
// The devices that share each product of one part.
inline DeviceGroup tensor_group(int split) { return {split, 1}; }
// The devices that have the same share of the products in the parts of a stage.
inline DeviceGroup data_group(int parts, int split) { return {parts, split}; }

// The place of a group's devices: `nodes` nodes have `in_node` of them each, in_node * nodes = size.
struct GroupPlace {
  int in_node = 1;
  int nodes = 1;
  friend bool operator==(const GroupPlace&, const GroupPlace&) = default;
};
// Returns where the devices of each such group are. With D devices a node and s = size * stride:
//   s divides D, or one node   all in one node
//   D divides s                D / stride in each of s / D nodes, if stride divides D
//   else                       counts differ from node to node, or no node has two: each device counts as in
//                              a node of its own, which is never too fast
GroupPlace place_of(const DeviceGroup& group, const Cluster& cluster);

// Returns a device's link to other nodes while `senders` devices of its node send.
Link network_link(const Cluster& cluster, int senders);

// Returns the seconds of a gather or an exchange of `bytes`, the whole, in each group of this kind. A group
// that leaves its node works on two levels, one after the other. An exchange: the devices in a node exchange
// the whole, then each exchanges its share with those that have the same one in other nodes. A gather: back
// the same way. All devices of a node share its network.
double collective_seconds(CollectiveKind kind, double bytes, const DeviceGroup& group,
                          const Cluster& cluster);

// Returns the link on which each device of a stage sends to its neighbour in the next one, parts * split
// devices on. It is the network's if one of them is in another node, and shared by the devices of a node that
// have such neighbours: min(parts * split, devices_per_node).
Link link_to_next_stage(const Cluster& cluster, int parts, int split, int stage);

}  // namespace stowage
