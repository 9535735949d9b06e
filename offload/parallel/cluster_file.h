// A cluster's file: nodes alike, their machine, and the network between them, as versioned JSON
// (docs/parallel.md has the fields).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "offload/parallel/collectives.h"

namespace stowage {

struct ClusterFile {
  int nodes = 1;
  std::string machine;                    // as --machine takes it: a name, or the path of a machine's file
  std::optional<int> devices_per_node{};  // not set: all that the machine has
  Network network{};                      // not used if there is one node
  // Watts of a device and of the rest of a node while they train; 0: not known.
  double watts_per_device = 0, watts_per_node = 0;
};

inline constexpr int most_cluster_nodes = 4096;

// Loss-free. `to_json` throws InvalidInput for a file that `cluster_from_json` would refuse.
std::string to_json(const ClusterFile& file);
// Treats its text as hostile: InvalidInput that names the field and says what to do, never worse.
ClusterFile cluster_from_json(std::string_view text);

// Returns the most devices of a node that can train one model together.
int devices_of_node(const MachineFile& machine);

}  // namespace stowage
