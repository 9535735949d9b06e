// Cuts of a step into stages of a pipeline.
#pragma once

#include <cstdint>
#include <vector>

#include "offload/parallel/stage.h"

namespace stowage::testing {

// Returns the stages of so many ranges each, by their cuts: range number i is that of stage i modulo stages.
inline std::vector<Graph> stages_of(const Graph& graph, const std::vector<std::uint32_t>& cuts,
                                    std::size_t ranges = 1) {
  const std::size_t stages = (cuts.size() - 1) / ranges;
  std::vector<std::vector<HalfBlocks>> of(stages);
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) of[i % stages].push_back({cuts[i], cuts[i + 1]});
  std::vector<Graph> graphs;
  for (const std::vector<HalfBlocks>& each : of) graphs.push_back(stage_of(graph, each));
  return graphs;
}

}  // namespace stowage::testing
