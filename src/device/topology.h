// What the host is made of, as hwloc sees it. hwloc is included in topology.cpp and nowhere else.
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
  std::vector<NumaNode> nodes;  // of the host: memory of cards that the system counts as nodes is left out
  Bytes memory() const;         // of all nodes
};

// Reads the running machine. Throws DeviceError when hwloc cannot.
Topology read_topology();

// Binds host memory to the NUMA node nearest to a PCI device (a GPU), so that transfers do not cross
// sockets. Movable; `bind` may be called from any thread.
class MemoryBinder {
 public:
  // "0000:01:00.0". A bus id that hwloc does not know, or a machine with one node, is no error: `bind`
  // then does nothing.
  explicit MemoryBinder(const std::string& pci_bus_id);
  MemoryBinder(MemoryBinder&&) noexcept;
  MemoryBinder& operator=(MemoryBinder&&) noexcept;
  ~MemoryBinder();

  // Pages of [begin, begin + bytes) not touched yet go to that node as long as it has any. Returns whether
  // the system was told so.
  bool bind(void* begin, Bytes bytes) const noexcept;

 private:
  struct Target;
  std::unique_ptr<Target> target_;  // null: nowhere in particular
};

}  // namespace stowage
