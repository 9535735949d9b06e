#include "tests/checkpoint/small_state.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace stowage::testing {

OwnFolder::OwnFolder() : path_((std::filesystem::temp_directory_path() / "stowage-XXXXXX").string()) {
  if (::mkdtemp(path_.data()) == nullptr) throw std::runtime_error("no temporary folder");
}

std::vector<std::string> OwnFolder::names() const {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(path_))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::string contents_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void put(const std::string& path, const std::string& contents) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << contents;
}

Graph small_graph() {
  Graph graph;
  graph.tensors = {{"tokens", DataType::i32, {4}, TensorKind::input, {}},
                   {"w", DataType::bf16, {5, 3}, TensorKind::parameter, {}},
                   {"w.low", DataType::i16, {5, 3}, TensorKind::optimizer_state, {}},
                   {"x", DataType::f32, {8}, TensorKind::activation, {}},
                   {"scale", DataType::f32, {}, TensorKind::parameter, {}},
                   {"none", DataType::f32, {0}, TensorKind::optimizer_state, {}},
                   {"w.first", DataType::f32, {5, 4}, TensorKind::optimizer_state, {}}};
  return graph;
}

SmallState::SmallState(const Graph& graph, int first_byte) : values_(graph.tensors.size()) {
  int next = first_byte;
  for (const TensorId id : lasting_tensors(graph)) {
    values_[id].resize(graph.tensor(id).bytes());
    for (std::byte& byte : values_[id]) byte = static_cast<std::byte>(next++ % 251);
  }
}

StateAccess SmallState::access() {
  return {[this](TensorId id, const StateAccess::FillPiece& piece) {
            // In pieces, as for a value that lives on a device.
            for (Bytes at = 0; at < values_[id].size(); at += 64) {
              const auto rest = std::span(values_[id]).subspan(at);
              piece(at, rest.first(std::min<std::size_t>(64, rest.size())));
            }
          },
          [this](TensorId id, Bytes offset, std::span<std::byte> into) {
            std::copy_n(values_[id].begin() + static_cast<std::ptrdiff_t>(offset), into.size(), into.begin());
          }};
}

CheckpointFolder::ReadValue SmallState::values_of(const Graph& graph) {
  return [this, ids = lasting_tensors(graph)](std::size_t tensor, Bytes offset, std::span<std::byte> into) {
    access().read(ids[tensor], offset, into);
  };
}

CheckpointState small_checkpoint(const Graph& graph, std::uint64_t step) {
  return {.step = step,
          .seed = 18446744073709551615U,
          .data_position = {{"epoch", 2}, {"sample", 77}},
          .configuration = {{"model.layers", "2"}, {"training.text", "a \"b\" \\ c"}},
          .tensors = checkpoint_tensors(graph)};
}

}  // namespace stowage::testing
