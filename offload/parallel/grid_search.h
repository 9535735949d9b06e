// The search for the fastest grid of stages, by three rungs of cost (docs/parallel.md).
//
// A candidate is timed by the sums of its half-blocks' ops, then by the lower bounds of its stages' graphs,
// then by their plans. Always the one of the least value climbs a rung, until no value is below the best
// plan's.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "offload/parallel/half_block_sums.h"
#include "offload/parallel/stage.h"
#include "stowage/plan.h"

namespace stowage {

enum class GridOrder : std::uint8_t {
  one_f_one_b,  // stage s of p runs ahead(min(micro-batches, p - s))
  gpipe,        // every stage runs all forwards before the first backward
};

// `stages` stages of `parts` groups of `split` devices. Each group has an equal part of every micro-batch,
// and its devices share each product.
struct GridShape {
  int stages = 1;
  int parts = 1;
  int split = 1;
  std::int64_t samples = 1;        // of a part, in one micro-batch
  std::int64_t micro_batches = 1;  // of a step
  GridOrder order = GridOrder::one_f_one_b;
  // Of half-blocks in each stage, which other trainers call virtual stages. Range r of stage s is number
  // r * stages + s. With several, micro-batches go through one range after another (stage.h).
  int ranges = 1;

  int devices() const { return stages * parts * split; }
  std::uint32_t ahead(int stage) const;
  friend auto operator<=>(const GridShape&, const GridShape&) = default;
};

// The plan of one stage in numbers: seconds and bytes of each of its devices.
struct StagePlan {
  double seconds = 0;        // of the step's ops, transfers and updates, without waiting for other stages
  double bound_seconds = 0;  // no plan of the stage takes less
  double stall_seconds = 0;
  // The time of one micro-batch in a range of the stage, forward and backward together: the median of all
  // micro-batches, and the average of all ranges.
  double way_seconds = 0;
  double forward_way_seconds = 0;  // its part in forward
  std::string bound_by;
  MicroBatchOrder order = MicroBatchOrder::layer_major;
  Bytes peak = 0;  // device budget that it fits into
  Bytes host = 0;
  Bytes resident = 0, streamed = 0;               // bytes of parameters
  Bytes kept = 0, offloaded = 0, recomputed = 0;  // bytes of activations
};

enum class Rung : std::uint8_t { sums, bounds, plans };
std::string_view to_string(Rung rung);

// A grid with its stages' times.
struct Grid {
  GridShape shape;
  std::vector<std::uint32_t> cuts;  // range number i has half-blocks [cuts[i], cuts[i + 1])
  Rung rung = Rung::sums;           // of `seconds`
  std::vector<double> seconds;      // of each stage
  std::vector<double> ways;         // of each stage: seconds of one micro-batch in a range, on average
  std::vector<double> sends;        // seconds of one send from each stage to the next
  double step_seconds = 0;
  std::vector<StagePlan> plans;  // of each stage; empty below Rung::plans
};

// Costs of one model on one cluster. Shapes and half-blocks are those that the search was given.
class GridCosts {
 public:
  virtual ~GridCosts() = default;
  // Returns the sums for one micro-batch of the shape's parts and samples.
  virtual const PrefixSums& sums(const GridShape& shape) = 0;
  // Returns the room of each device of the shape.
  virtual StageRoom room(const GridShape& shape) = 0;
  // Returns the seconds of a send of so many bytes from stage `stage` to the next one.
  virtual double send_seconds(const GridShape& shape, int stage, double bytes) = 0;
  // Returns the lower bound, or the plan, of a stage; infinite and nothing if it does not fit.
  virtual double bound_seconds(const GridShape& shape, int stage, const std::vector<HalfBlocks>& ranges) = 0;
  virtual std::optional<StagePlan> plan(const GridShape& shape, int stage,
                                        const std::vector<HalfBlocks>& ranges) = 0;
  // Returns false for a shape whose graphs are too large for bounds and plans.
  virtual bool may_plan(const GridShape& shape) = 0;
  // Returns the number of plans made so far, the search's work: a bound takes a hundredth of a plan's time.
  virtual std::uint64_t work() const = 0;
};

// Returns the ranges of one stage.
std::vector<HalfBlocks> ranges_of(const GridShape& shape, const std::vector<std::uint32_t>& cuts, int stage);
// Returns the seconds of a send from a stage to the next, or from the last to the first one: the longest of
// `sends`, for the last stage is in another node than the first one if any stage is than its next.
double way_back_seconds(const std::vector<double>& sends);

// Returns the step of stages that take `stages` seconds each without waiting for others, `ways` for one
// micro-batch in a range, and `sends` for one send to the next stage: the longest of each stage's own seconds
// with one micro-batch's way through a range of all others, and its sends both ways. Of equal stages these
// are M - 1 micro-batches in one stage and one in all, as 1F1B and GPipe take. Between two ranges a stage
// also waits if a micro-batch needs longer to come round, forward and back, than the slowest stage needs for
// all of them in a range. Falls with none of the seconds.
double grid_step_seconds(const GridShape& shape, const std::vector<double>& stages,
                         const std::vector<double>& ways, const std::vector<double>& sends);

struct GridQuestion {
  std::vector<GridShape> shapes;
  // A step that others take, for which no grid has to be searched; infinite: none.
  double below = std::numeric_limits<double>::infinity();
  Rung highest = Rung::plans;
  double close_enough = 0.03;    // the search ends when the next candidate is no further below the best
  std::uint64_t most_work = 60;  // plans
  std::function<bool(const std::string& doing)> keep_going = [](const std::string&) { return true; };
};

struct GridSearchAnswer {
  std::vector<Grid> grids;  // those on the highest rung, by rising step; of sums the best ones
  // The best candidates that stayed below, by rising `step_seconds`, which are lower bounds.
  std::vector<Grid> below;
  // No grid of these shapes, with the cuts that are even by sums, takes less. 0: not known, since the search
  // was stopped before it had the sums of all.
  double bound = 0;
  std::size_t shapes = 0;  // with sums
  std::uint64_t work = 0;
  bool stopped = false, limited = false;  // keep_going said so; most_work was reached
};

GridSearchAnswer search_grids(GridCosts& costs, const GridQuestion& question);

// Returns the cuts of the shape whose slowest range is fastest by sums.
std::vector<std::uint32_t> even_cuts(GridCosts& costs, const GridShape& shape);
// Times one grid, up to the highest rung, whatever its value. Empty: some stage does not fit.
std::optional<Grid> time_grid(GridCosts& costs, const GridShape& shape,
                              const std::vector<std::uint32_t>& cuts, Rung highest);

}  // namespace stowage
