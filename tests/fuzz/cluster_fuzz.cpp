// A cluster: `stowage parallel --cluster FILE`.
#include "offload/parallel/cluster_file.h"
#include "tests/fuzz/target.h"

namespace stowage::fuzz {

std::vector<std::string> seeds() {
  ClusterFile file;
  file.machine = "4x-rtx4090";
  std::vector<std::string> seeds{to_json(file)};
  file.nodes = 384;
  file.machine = "8x-a100-80gb";
  file.devices_per_node = 8;
  file.watts_per_device = 400;
  file.watts_per_node = 2000;
  file.network.path = PeerPath::host_memory;
  seeds.push_back(to_json(file));
  return seeds;
}

std::vector<std::string> dictionary() {
  return {"\"nodes\": 2",
          "\"network\": {}",
          "\"path\": \"link\"",
          "\"machine\": \"here\"",
          "1e9",
          "4097",
          "null",
          "-0"};
}

}  // namespace stowage::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stowage;
  const auto file = fuzz::parsed_or_refused([&] { return cluster_from_json(fuzz::text_of(data, size)); });
  if (!file) return 0;
  const std::string text = to_json(*file);
  if (to_json(cluster_from_json(text)) != text) fuzz::broken("a cluster reads back otherwise");
  return 0;
}
