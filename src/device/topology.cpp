#include "src/device/topology.h"

#include <hwloc.h>

#include <cstdlib>
#include <memory>

#include "stowage/error.h"

namespace stowage {
namespace {

struct DestroyTopology {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using TopologyHandle = std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, DestroyTopology>;

TopologyHandle load() {
  setenv("HWLOC_COMPONENTS", "-gl,-opencl", 0);
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0)
    throw DeviceError("hwloc cannot start: check its installation", "read_topology");
  TopologyHandle topology(raw);
  if (hwloc_topology_load(raw) != 0)
    throw DeviceError("hwloc cannot read this machine: run `lstopo` to see why", "read_topology");
  return topology;
}

}  // namespace

Bytes Topology::memory() const {
  Bytes sum = 0;
  for (const NumaNode& node : nodes) sum += node.memory;
  return sum;
}

Topology read_topology() {
  const TopologyHandle handle = load();
  Topology result;
  result.cores = hwloc_get_nbobjs_by_type(handle.get(), HWLOC_OBJ_CORE);
  result.processing_units = hwloc_get_nbobjs_by_type(handle.get(), HWLOC_OBJ_PU);
  if (result.cores == 0) result.cores = result.processing_units;  // some virtual machines hide cores
  const int nodes = hwloc_get_nbobjs_by_type(handle.get(), HWLOC_OBJ_NUMANODE);
  for (int i = 0; i < nodes; ++i) {
    const hwloc_obj_t node =
        hwloc_get_obj_by_type(handle.get(), HWLOC_OBJ_NUMANODE, static_cast<unsigned>(i));
    result.nodes.push_back({node->os_index, node->attr->numanode.local_memory});
  }
  return result;
}

}  // namespace stowage
