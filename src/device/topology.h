// What the host is made of, as hwloc sees it. hwloc is included in topology.cpp and nowhere else.
#pragma once

#include <vector>

#include "stowage/bytes.h"

namespace stowage {

struct NumaNode {
  unsigned index = 0;  // the operating system's number
  Bytes memory = 0;
};

struct Topology {
  int cores = 0;             // physical
  int processing_units = 0;  // hardware threads this process may use
  std::vector<NumaNode> nodes;
  Bytes memory() const;  // of all nodes
};

// Reads the running machine. Throws DeviceError when hwloc cannot. Sets HWLOC_COMPONENTS unless it
// is set, to keep hwloc's GPU plugins out; call it before other threads read the environment.
Topology read_topology();

}  // namespace stowage
