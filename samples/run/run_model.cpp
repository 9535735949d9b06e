#include "samples/run/run_model.h"

#include <algorithm>
#include <string>

#include "samples/options/initial_sizes.h"
#include "samples/run/stored_model.h"
#include "stowage/graph_builder.h"

namespace stowage::samples {

Model build_model(const Task& task, const Options& options, int rank) {
  return about_initial(options, [&] {
    const auto build = [&](const GptConfig& sizes, BuiltModel& built) {
      GraphBuilder builder(options.type);
      built = task.build(builder, sizes);
      return builder.finish(built.loss, optimizer_of(options));
    };
    Model model;
    model.graph = build(options.model, model.built);
    if (options.devices == 1) return model;
    GptConfig sizes = options.model;
    sizes.ranks = options.devices;
    const std::int64_t here = options.devices / options.processes;
    for (std::int64_t i = 0; i < here; ++i) {
      BuiltModel built;
      sizes.rank = rank * here + i;
      model.ranks.push_back(build(sizes, built));
    }
    return model;
  });
}

ReadParameter reader_of(const Graph& graph, EngineGroup& engine) {
  return [&](const std::string& name) {
    const auto found = std::find_if(graph.tensors.begin(), graph.tensors.end(),
                                    [&](const Tensor& tensor) { return tensor.name == name; });
    std::vector<std::byte> value = engine.read(static_cast<TensorId>(found - graph.tensors.begin()));
    return size_of(found->type) == 2 ? widened(found->type, value) : value;
  };
}

}  // namespace stowage::samples
