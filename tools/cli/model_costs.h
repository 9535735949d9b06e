// Costs of a model's stages on a cluster, for the search over grids: sums, bounds and plans of graphs that
// the model's builder makes.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "offload/parallel/cluster_file.h"
#include "offload/parallel/grid_search.h"
#include "stowage/planner.h"
#include "tools/choices/model_spec.h"

namespace stowage {

struct ClusterQuestion {
  ModelSpec model;  // `batch` is the whole batch; `ranks`, micro-batches and gradient groups do not count
  MachineFile machine;
  int nodes = 1;
  int devices_per_node = 1;
  Network network{};
  std::optional<Bytes> device_memory{};  // of each device; not set: the machine's
  std::optional<Bytes> host_memory{};    // of each node; not set: the machine's
  PlanOptions options{};
  Rung highest = Rung::plans;

  int devices() const { return nodes * devices_per_node; }
};

class ModelCosts final : public GridCosts {
 public:
  explicit ModelCosts(const ClusterQuestion& question);  // must outlive the costs
  ~ModelCosts() override;
  ModelCosts(const ModelCosts&) = delete;
  ModelCosts& operator=(const ModelCosts&) = delete;

  const PrefixSums& sums(const GridShape& shape) override;
  StageRoom room(const GridShape& shape) override;
  double send_seconds(const GridShape& shape, int stage, double bytes) override;
  double bound_seconds(const GridShape& shape, int stage, const std::vector<HalfBlocks>& ranges) override;
  std::optional<StagePlan> plan(const GridShape& shape, int stage,
                                const std::vector<HalfBlocks>& ranges) override;
  bool may_plan(const GridShape& shape) override;
  std::uint64_t work() const override { return work_; }

  // Returns the device memory and the host memory of each device of the shape.
  Budget budget(const GridShape& shape);
  // Returns what half-block `number` is: "embedding", "h.3.attn".
  std::string name_of(std::uint32_t number) const;
  std::uint32_t half_blocks() const { return static_cast<std::uint32_t>(names_.size()); }
  bool was_cancelled() const { return cancelled_; }
  // Returns the least memory that one of the stages asked for whose plan did not fit: of host memory if one
  // lacked that alone.
  std::optional<Infeasible> least_refused() const { return least_refused_; }

 private:
  struct Node;      // one node with some of its devices at work
  struct FewParts;  // the sums of one part or of one of two, and their collectives
  struct Layers;    // the sums of one shape, and which half-blocks are alike
  struct Stage;     // a stage's bound and plan

  const Node& node_of(const GridShape& shape);
  const FewParts& few_parts_of(const GridShape& shape);
  const Layers& layers_of(const GridShape& shape);
  Stage& stage_at(const GridShape& shape, int stage, const std::vector<HalfBlocks>& ranges);
  Graph rank_graph(const GridShape& shape, const Node& node, const ModelConfig& config) const;
  const Graph& whole_graph(const GridShape& shape);
  Graph stage_graph(const GridShape& shape, int stage, const std::vector<HalfBlocks>& ranges);

  const ClusterQuestion& question_;
  std::vector<std::string> names_;
  std::map<int, std::unique_ptr<Node>> nodes_;
  // By devices of a node at work, parts, split and samples.
  std::map<std::tuple<int, int, int, std::int64_t>, std::unique_ptr<FewParts>> few_parts_;
  std::map<std::tuple<int, int, int, std::int64_t>, std::unique_ptr<Layers>> layers_;
  std::map<std::string, std::unique_ptr<Stage>> stages_;
  std::optional<std::pair<GridShape, Graph>> whole_;  // the newest graph of all half-blocks
  std::uint64_t work_ = 0;
  bool cancelled_ = false;
  std::optional<Infeasible> least_refused_;
};

// Returns whether heads, key heads and vocabulary can be split among so many devices.
bool can_split(const ModelConfig& config, int split);
// Returns every shape of at most all devices: split by a power of two within a node, where can_split allows
// it; parts that divide the batch and are a power of two (as the tree of gradients needs it), micro-batches
// of any divisor of a part's samples, no more ranges than half-blocks. Stages have 1, 2 or 4 ranges; several
// if there are as many micro-batches as stages, since fewer leave them idle between ranges.
std::vector<GridShape> shapes_of(const ClusterQuestion& question, std::uint32_t half_blocks);

}  // namespace stowage
