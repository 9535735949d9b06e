#include "tools/replay/replay.h"

#include <gtest/gtest.h>

#include "stowage/error.h"
#include "tools/replay/pytorch_model.h"

namespace stowage {
namespace {

// Reserves 100 bytes for each that is live, and warms up at its second iteration.
class StubModel : public AllocatorModel {
 public:
  std::uint64_t allocate(AllocationId, Bytes bytes, std::uint32_t) override {
    if (bytes > 50) throw OutOfMemory("too much; ask for less", bytes, 0);
    return ++live_;
  }
  void free(AllocationId) override { --live_; }
  void begin_iteration() override { ++iterations_; }
  Bytes reserved_bytes() const override { return 100 * live_; }
  void release_cached() override {}
  bool is_warm() const override { return iterations_ >= 2; }

 private:
  Bytes live_ = 0;
  int iterations_ = 0;
};

TEST(Replay, TellsTheFirstIterationFromTheWarmOnes) {
  const std::vector<PlacementItem> items{{0, 2, 20}, {1, 3, 30}};
  const AllocationTrace trace = repeated(trace_of_lifetimes(items), 3);
  StubModel model;
  const ReplayResult result = replay(trace, model);
  EXPECT_EQ(result.first.operations, 4U);
  EXPECT_EQ(result.warm.operations, 8U);
  EXPECT_EQ(result.all.operations, 12U);
  for (const ReplayPeaks& peaks : {result.first, result.warm, result.all}) {
    EXPECT_EQ(peaks.live_bytes, 50U);
    EXPECT_EQ(peaks.reserved_bytes, 200U);
    EXPECT_EQ(peaks.ratio(), 4);
  }
  EXPECT_FALSE(result.out_of_memory);
}

TEST(Replay, TakesAllForTheFirstWhereThereAreNoIterations) {
  TraceBuilder builder;
  builder.free(builder.allocate(1));
  StubModel model;
  const ReplayResult result = replay(std::move(builder).finish(), model);
  EXPECT_EQ(result.first.operations, 2U);
  EXPECT_EQ(result.warm.operations, 0U);
  EXPECT_EQ(ReplayPeaks{}.ratio(), 0);
}

TEST(Replay, EndsWhereMemoryDoes) {
  TraceBuilder builder;
  builder.allocate(20);
  builder.allocate(51);
  builder.allocate(1);
  StubModel model;
  const AllocationTrace trace = std::move(builder).finish();
  const ReplayResult result = replay(trace, model);
  EXPECT_TRUE(result.out_of_memory);
  EXPECT_EQ(result.error, "too much; ask for less");
  EXPECT_EQ(result.all.operations, 1U);
  EXPECT_EQ(nanoseconds_per_operation(trace, [] { return std::make_unique<StubModel>(); }), 0);
}

TEST(Replay, MeasuresTime) {
  const std::vector<PlacementItem> items{{0, 2, 20}, {1, 3, 30}};
  const AllocationTrace trace = repeated(trace_of_lifetimes(items), 3);
  EXPECT_GT(nanoseconds_per_operation(trace, [] { return std::make_unique<PytorchModel>(PytorchOptions{}); }),
            0);
  EXPECT_EQ(nanoseconds_per_operation({}, [] { return std::make_unique<StubModel>(); }), 0);
}

}  // namespace
}  // namespace stowage
