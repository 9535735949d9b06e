// The host's cores, NUMA nodes and devices, as hwloc sees them. Only topology.cpp includes hwloc.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "stowage/bytes.h"

namespace stowage {

struct NumaNode {
  unsigned index = 0;  // the operating system's number
  Bytes memory = 0;
};

struct Topology {
  int cores = 0;                // physical
  int processing_units = 0;     // hardware threads this process may use
  std::vector<NumaNode> nodes;  // nodes of the host; cards' memory that the system lists as nodes is left out
  Bytes memory() const;         // memory of all nodes
};

// Reads the running machine. Throws DeviceError when hwloc cannot.
Topology read_topology();

// Binds host memory to the NUMA node nearest to a PCI device (a GPU), so that transfers do not cross
// sockets. Movable; `bind` may be called from any thread.
class MemoryBinder {
 public:
  // `pci_bus_id`: "0000:01:00.0". If hwloc does not know it, or the machine has one node, `bind`
  // does nothing.
  explicit MemoryBinder(const std::string& pci_bus_id);
  MemoryBinder(MemoryBinder&&) noexcept;
  MemoryBinder& operator=(MemoryBinder&&) noexcept;
  ~MemoryBinder();

  // Directs the untouched pages of [begin, begin + bytes) to that node as long as it has free pages. Returns
  // whether the system accepted this.
  bool bind(void* begin, Bytes bytes) const noexcept;

 private:
  struct Target;
  std::unique_ptr<Target> target_;  // null: `bind` does nothing
};

}  // namespace stowage
