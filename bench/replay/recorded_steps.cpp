#include "bench/replay/recorded_steps.h"

#include <map>
#include <vector>

#include "src/history/histories.h"
#include "stowage/caching_allocator.h"
#include "stowage/simulated_device.h"
#include "tools/replay/graph_trace.h"

namespace stowage::bench {
namespace {

// Passes requests to an allocator and writes them down.
class Recorder {
 public:
  explicit Recorder(Device& device) : device_(device), allocator_(device) {}

  std::byte* allocate(Bytes bytes) {
    void* const block = allocator_.allocate_raw(bytes, lane_.id());
    text_ += history_allocate(++sequence_, reinterpret_cast<std::uintptr_t>(block), bytes, lane_.id());
    return static_cast<std::byte*>(block);
  }
  void free(std::byte* block) {
    text_ += history_free(++sequence_, reinterpret_cast<std::uintptr_t>(block));
    allocator_.release_raw(block);
  }
  void begin_iteration() { text_ += history_iteration(++sequence_, ++iteration_); }
  void launch(std::string_view name, std::span<const Access> accesses) {
    Launch launch;
    launch.name = name;
    launch.function = [](void*) {};
    launch.accesses = accesses;
    device_.launch(lane_.id(), launch);
  }
  void fill(std::byte* block, Bytes bytes) {
    const Access write{block, bytes, AccessMode::write};
    launch("fill", {&write, 1});
  }
  const std::string& text() const { return text_; }

 private:
  Device& device_;
  Lane lane_{device_, LaneRole::compute};
  CachingAllocator allocator_;
  std::string text_ = history_header();
  std::uint64_t sequence_ = 0, iteration_ = 0;
};

using Residents = std::map<std::string, std::byte*>;  // by tensor name

class RecordedStep : public StepListener {
 public:
  RecordedStep(const Graph& graph, const Residents& residents, Recorder& recorder)
      : graph_(graph), recorder_(recorder), blocks_(graph.tensors.size(), nullptr) {
    for (TensorId id = 0; id < graph.tensors.size(); ++id)
      if (stays(graph.tensor(id))) blocks_[id] = residents.at(graph.tensor(id).name);
  }
  void allocate(TensorId id) override {
    blocks_[id] = recorder_.allocate(graph_.tensor(id).bytes());
    if (graph_.tensor(id).kind == TensorKind::input) recorder_.fill(blocks_[id], graph_.tensor(id).bytes());
  }
  void free(TensorId id) override { recorder_.free(blocks_[id]); }
  void run(const Op& op) override {
    std::vector<Access> accesses;
    const auto add = [&](TensorId id, AccessMode mode) {
      std::byte* const address = blocks_[graph_.whole_of(id)] + graph_.offset_in_whole(id);
      accesses.push_back({address, graph_.tensor(id).bytes(), mode});
    };
    for (const TensorId id : op.reads) add(id, AccessMode::read);
    for (const TensorId id : op.writes) add(id, AccessMode::write);
    recorder_.launch(op.name, accesses);
  }

 private:
  const Graph& graph_;
  Recorder& recorder_;
  std::vector<std::byte*> blocks_;  // by tensor
};

Residents make_residents(const Graph& graph, Recorder& recorder) {
  Residents residents;
  for (const Tensor& tensor : graph.tensors) {
    if (!stays(tensor)) continue;
    residents[tensor.name] = recorder.allocate(tensor.bytes());
    recorder.fill(residents[tensor.name], tensor.bytes());
  }
  return residents;
}

}  // namespace

std::string record_steps(std::span<const Graph> graphs) {
  const auto device =
      open_simulated_device({.capacity = 80_GiB, .executor = Executor::virtual_time, .poison = Poison::none});
  Recorder recorder(*device);
  Residents residents;
  for (const Graph& graph : graphs) {
    if (residents.empty()) residents = make_residents(graph, recorder);
    recorder.begin_iteration();
    RecordedStep step(graph, residents, recorder);
    play_step(graph, step);
  }
  return recorder.text();
}

}  // namespace stowage::bench
