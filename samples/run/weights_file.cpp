#include "samples/run/weights_file.h"

#include <nlohmann/json.hpp>

namespace stowage::samples {

std::string weights_index(const Graph& graph) {
  using nlohmann::ordered_json;
  ordered_json tensors = ordered_json::array();
  Bytes offset = 0;
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.kind != TensorKind::parameter) continue;
    tensors.push_back({{"name", tensor.name},
                       {"type", to_string(tensor.type)},
                       {"shape", tensor.shape},
                       {"offset", offset},
                       {"bytes", tensor.bytes()}});
    offset += tensor.bytes();
  }
  return ordered_json{{"format", "stowage-weights"}, {"version", 1}, {"tensors", std::move(tensors)}}.dump() +
         '\n';
}

void write_weights(OutputFile& file, const Graph& graph, const ReadTensor& read) {
  if (!file.wanted()) return;
  file.write(weights_index(graph));
  for (TensorId id = 0; id < graph.tensors.size(); ++id) {
    if (graph.tensor(id).kind != TensorKind::parameter) continue;
    const std::vector<std::byte> value = read(id);
    file.write({reinterpret_cast<const char*>(value.data()), value.size()});
  }
  file.commit();
}

}  // namespace stowage::samples
