#include "src/device/topology.h"

#include <hwloc.h>

#include <memory>
#include <string_view>

#include "stowage/error.h"

namespace stowage {
namespace {

struct DestroyTopology {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using TopologyHandle = std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, DestroyTopology>;

// Returns a topology that is not loaded yet and has no GPU plugins of hwloc; null if hwloc cannot start.
TopologyHandle start() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return nullptr;
  for (const char* plugin : {"cuda", "nvml", "opencl", "gl"})
    hwloc_topology_set_components(raw, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, plugin);
  return TopologyHandle(raw);
}

TopologyHandle load() {
  TopologyHandle topology = start();
  if (topology == nullptr) throw DeviceError("hwloc cannot start: check its installation", "read_topology");
  if (hwloc_topology_load(topology.get()) != 0)
    throw DeviceError("hwloc cannot read this machine: run `lstopo` to see why", "read_topology");
  return topology;
}

hwloc_topology_t load_with_devices() {
  TopologyHandle topology = start();
  if (topology == nullptr) return nullptr;
  hwloc_topology_set_io_types_filter(topology.get(), HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  if (hwloc_topology_load(topology.get()) != 0) return nullptr;
  return topology.release();
}

// Returns the process's topology with its PCI devices, or null if hwloc cannot read them. Reading takes tens
// of milliseconds, so the topology is read once and kept until the process has ended.
hwloc_topology_t machine_with_devices() {
  static hwloc_topology_t const topology = load_with_devices();
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
    if (node->subtype != nullptr && std::string_view(node->subtype) == "GPUMemory") continue;
    result.nodes.push_back({node->os_index, node->attr->numanode.local_memory});
  }
  return result;
}

struct MemoryBinder::Target {
  hwloc_topology_t topology = nullptr;    // topology of the process, see machine_with_devices()
  hwloc_const_nodeset_t nodes = nullptr;  // node set that the topology owns
};

MemoryBinder::MemoryBinder(const std::string& pci_bus_id) {
  if (pci_bus_id.empty()) return;
  hwloc_topology_t topology = machine_with_devices();
  if (topology == nullptr) return;
  const hwloc_obj_t device = hwloc_get_pcidev_by_busidstring(topology, pci_bus_id.c_str());
  if (device == nullptr) return;
  const hwloc_obj_t near = hwloc_get_non_io_ancestor_obj(topology, device);
  if (near == nullptr || near->nodeset == nullptr) return;
  if (hwloc_bitmap_isequal(near->nodeset, hwloc_topology_get_topology_nodeset(topology)) != 0) return;
  target_ = std::make_unique<Target>(Target{topology, near->nodeset});
}

MemoryBinder::MemoryBinder(MemoryBinder&&) noexcept = default;
MemoryBinder& MemoryBinder::operator=(MemoryBinder&&) noexcept = default;
MemoryBinder::~MemoryBinder() = default;

bool MemoryBinder::bind(void* begin, Bytes bytes) const noexcept {
  if (target_ == nullptr) return false;
  // Not strict: if the node is full, pages go elsewhere instead of ending the process.
  return hwloc_set_area_membind(target_->topology, begin, bytes, target_->nodes, HWLOC_MEMBIND_BIND,
                                HWLOC_MEMBIND_BYNODESET) == 0;
}

}  // namespace stowage
