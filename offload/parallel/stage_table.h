// StageTable: StageCosts of ParallelCosts. Inside a stage each layer takes one variant, exactly the best ones
// under the stage's memory.
#pragma once

#include <memory>
#include <vector>

#include "offload/parallel/costs.h"
#include "offload/parallel/search.h"
#include "offload/parallel/stage_costs.h"

namespace stowage {

// One stage of a pipeline in detail.
struct StageDetail {
  std::vector<int> variants;  // of each layer from `first` on, a number in ParallelLayer::variants
  double forward_seconds = 0,
         backward_seconds = 0;  // of a micro-batch, sends left out; changes count as forward
  // A micro-batch's sends, forward and backward together: what comes from the stage before and goes back to
  // it, and the same towards the stage behind. 0 at the ends of the model.
  double front_send_seconds = 0, back_send_seconds = 0;
  double exchange_seconds = 0;  // StageOption::tail
  Bytes bytes = 0;              // of each device, with so many micro-batches in flight:
  std::int64_t in_flight = 0;
};

class StageTable final : public StageCosts {
 public:
  // `costs` must outlive the table. Throws InvalidInput for costs that parallel_costs_from_json would refuse,
  // and for so many layers, layouts and devices that the table would not fit in memory.
  explicit StageTable(const ParallelCosts& costs);
  ~StageTable() override;

  int layers() const override;
  std::span<const StageLayout> layouts() const override;
  int index_step(int layout) const override;
  std::span<const StageOption> options(int first, int last, int layout, int index) override;
  StageOption best_case(int first, int last, int layout) override;
  StageOption bound(int first, int last, int layout, int index) override;

  // Returns what each stage of a pipeline that was found in this table does.
  std::vector<StageDetail> details(const Pipeline& pipeline);

  // Returns, for stages of layers [first, first + 1), [first, first + 2), …, the fewest bytes of a device
  // with any variants, whatever memory there is. Ends before the first layer that has no variant in the
  // layout.
  std::vector<Bytes> least_bytes(int first, int layout, int index) const;

  std::uint64_t work() const override;
  bool exact() const override;  // false: a stage had more than most_stage_labels choices to compare

 private:
  class Body;
  std::unique_ptr<Body> body_;
};

// Limit of the choices of variants that are kept side by side while a stage is computed.
inline constexpr std::size_t most_stage_labels = 20'000;

// The question that the costs ask, without limits of its own.
SearchQuestion question_of(const ParallelCosts& costs);

// The least memory of a device in which a pipeline fits, and the stage that needs it.
struct LeastMemory {
  Bytes bytes = 0;
  int first = 0, last = 0;  // layers of the stage
  StageLayout layout;
};
// Returns nullopt if there is no pipeline in any memory: layers without variants for the devices. `grids`:
// only grids count.
std::optional<LeastMemory> least_memory(const ParallelCosts& costs, bool grids);

}  // namespace stowage
