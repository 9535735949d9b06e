// The model of a run, as its ranks see it.
#pragma once

#include <cstdint>
#include <vector>

#include "samples/options/options.h"
#include "samples/task/task.h"
#include "stowage/engine_group.h"
#include "stowage/graph.h"

namespace stowage::samples {

struct Model {
  BuiltModel built;          // of `graph`
  Graph graph;               // whole parameters
  std::vector<Graph> ranks;  // where there are several devices, that of each one of this process
  Graph& planned() { return ranks.empty() ? graph : ranks.front(); }
};

// For the process of rank `rank` of options.processes. Throws InvalidInput for sizes that make no model.
Model build_model(const Task& task, const Options& options, int rank);

// Both must outlive what is returned.
ReadParameter reader_of(const Graph& graph, EngineGroup& engine);

}  // namespace stowage::samples
