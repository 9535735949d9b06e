#include "src/history/allocation_trace.h"

#include <gtest/gtest.h>

namespace stowage {
namespace {

using Operations = std::vector<TraceOperation>;
constexpr TraceKind make = TraceKind::allocate, drop = TraceKind::free;

TEST(AllocationTrace, OfLifetimesFreesFirstAtEqualTimes) {
  const std::vector<PlacementItem> items{{2, 4, 10}, {0, 2, 20}, {2, 3, 30}};
  const AllocationTrace trace = trace_of_lifetimes(items);
  const Operations expected{{make, 0, 20, 0}, {drop, 0, 20, 0}, {make, 1, 10, 0},
                            {make, 2, 30, 0}, {drop, 2, 30, 0}, {drop, 1, 10, 0}};
  EXPECT_EQ(trace.operations, expected);
  EXPECT_EQ(trace.iterations, std::vector<std::size_t>{0});
  EXPECT_EQ(trace.allocations, 3U);
  EXPECT_EQ(peak_live_bytes(trace), 40U);
}

TEST(AllocationTrace, IsRepeatedWithNewAllocations) {
  const std::vector<PlacementItem> items{{0, 2, 20}};
  const AllocationTrace trace = repeated(trace_of_lifetimes(items), 2);
  const Operations expected{{make, 0, 20, 0}, {drop, 0, 20, 0}, {make, 1, 20, 0}, {drop, 1, 20, 0}};
  EXPECT_EQ(trace.operations, expected);
  EXPECT_EQ(trace.iterations, (std::vector<std::size_t>{0, 2}));
  EXPECT_EQ(trace.allocations, 2U);
}

TEST(AllocationTrace, IsBuiltOperationByOperation) {
  TraceBuilder builder;
  const AllocationId kept = builder.allocate(7, 1);
  builder.begin_iteration();
  builder.free(builder.allocate(5));
  const AllocationTrace trace = std::move(builder).finish();
  EXPECT_EQ(kept, 0U);
  EXPECT_EQ(trace.operations, (Operations{{make, 0, 7, 1}, {make, 1, 5, 0}, {drop, 1, 5, 0}}));
  EXPECT_EQ(trace.iterations, std::vector<std::size_t>{1});
  EXPECT_EQ(peak_live_bytes(trace), 12U);
}

}  // namespace
}  // namespace stowage
