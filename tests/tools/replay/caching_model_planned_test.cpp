// The caching allocator with plans, as a model.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "stowage/error.h"
#include "stowage/models.h"
#include "tests/support/checked_model.h"
#include "tests/support/random_trace.h"
#include "tools/replay/caching_model.h"
#include "tools/replay/graph_trace.h"
#include "tools/replay/replay.h"

namespace stowage {
namespace {

ReplayResult replay_checked(const AllocationTrace& trace, AllocatorModel& model) {
  test::CheckedModel checked(model);
  return replay(trace, checked);
}

// 100 blocks of 3 MiB, ten at a time.
AllocationTrace rolling_blocks() {
  std::vector<PlacementItem> items;
  for (std::int64_t i = 0; i < 100; ++i) items.push_back({i, i + 10, 3_MiB});
  return trace_of_lifetimes(items);
}

TEST(CachingModelPlanned, ReservesThePlanAlone) {
  CachingModel model(4_GiB, true);
  const ReplayResult result = replay_checked(repeated(rolling_blocks(), 3), model);
  EXPECT_EQ(result.first.reserved_bytes, 30_MiB);
  EXPECT_EQ(result.warm.operations, 400U);
  EXPECT_EQ(result.warm.live_bytes, 30_MiB);
  EXPECT_EQ(result.warm.reserved_bytes, 30_MiB);
}

TEST(CachingModelPlanned, FindsThePeriodWhereNobodySaysIt) {
  AllocationTrace trace = repeated(rolling_blocks(), 8);
  trace.iterations.clear();
  CachingModel model(4_GiB, true);
  const ReplayResult result = replay_checked(trace, model);
  EXPECT_GT(result.warm.operations, 600U);
  EXPECT_GT(model.statistics().planned.hits, 300U);
}

TEST(CachingModelPlanned, LeavesNothingBehindWhereTheFallbackFails) {
  CachingModel model(10_MiB, true);
  model.begin_iteration();
  EXPECT_THROW(model.allocate(0, 30_MiB, 0), OutOfMemory);
  model.allocate(0, 10_MiB, 0);
  model.free(0);
  model.begin_iteration();
  model.allocate(0, 10_MiB, 0);
  EXPECT_EQ(model.statistics().planned.hits, 1U);
  EXPECT_EQ(model.reserved_bytes(), 10_MiB);
}

TEST(CachingModelPlanned, StaysWithinTheLimit) {
  CachingModel model(40_MiB, true);
  for (AllocationId id = 0; id < 2; ++id) {
    model.begin_iteration();
    model.allocate(id, 30_MiB, 0);
    model.free(id);
  }
  EXPECT_EQ(model.reserved_bytes(), 30_MiB);
  model.allocate(2, 12_MiB, 0);  // in the place of the plan
  EXPECT_LE(model.reserved_bytes(), 30_MiB);
  model.allocate(3, 28_MiB, 0);
  EXPECT_EQ(model.reserved_bytes(), 40_MiB);
  EXPECT_THROW(model.allocate(4, 2_MiB, 0), OutOfMemory);
}

TEST(CachingModelPlanned, FailsWhereThePlanIsInUseAndTheRestTooSmall) {
  CachingModel model(40_MiB, true);
  model.begin_iteration();
  model.allocate(0, 30_MiB, 0);
  model.free(0);
  model.begin_iteration();
  model.allocate(1, 30_MiB, 0);
  EXPECT_THROW(model.allocate(2, 12_MiB, 0), OutOfMemory);
  EXPECT_EQ(model.reserved_bytes(), 30_MiB);
  model.allocate(2, 10_MiB, 0);
  EXPECT_EQ(model.reserved_bytes(), 40_MiB);
}

// The plan's memory goes where its iterations do not come any more.
TEST(CachingModelPlanned, StrandsNoMemoryOfThePlan) {
  AllocationTrace trace = repeated(rolling_blocks(), 2);
  TraceBuilder builder;
  for (int i = 0; i < 2; ++i) {
    builder.begin_iteration();
    std::vector<AllocationId> ids(100);
    for (std::size_t k = 0; k < 110; ++k) {
      if (k >= 10) builder.free(ids[k - 10]);
      if (k < 100) ids[k] = builder.allocate(2_MiB);
    }
  }
  const AllocationTrace other = std::move(builder).finish();
  for (const std::size_t begin : other.iterations)
    trace.iterations.push_back(trace.operations.size() + begin);
  for (TraceOperation operation : other.operations) {
    operation.id += static_cast<AllocationId>(trace.allocations);
    trace.operations.push_back(operation);
  }
  CachingModel model(4_GiB, true);
  test::CheckedModel checked(model);
  Bytes most = 0;
  for (std::size_t i = 0, next = 0; i < trace.operations.size(); ++i) {
    for (; next < trace.iterations.size() && trace.iterations[next] == i; ++next) checked.begin_iteration();
    const TraceOperation& operation = trace.operations[i];
    if (operation.kind == TraceKind::free) {
      checked.free(operation.id);
    } else {
      checked.allocate(operation.id, operation.bytes, operation.stream);
    }
    if (i >= trace.iterations[2] + 20 && i < trace.iterations[3])
      most = std::max(most, model.reserved_bytes());
  }
  EXPECT_EQ(most, 30_MiB);  // the fallback's 20 MiB are of the plan's 30
}

// Nor what served iterations that no plan was made of.
TEST(CachingModelPlanned, StrandsNoMemoryOfTheFallback) {
  CachingModel model(4_GiB, true);
  AllocationId id = 0;
  for (Bytes i = 0; i < 12; ++i) {
    model.begin_iteration();
    EXPECT_LE(model.reserved_bytes(), 4_MiB) << i;
    for (int k = 0; k < 20; ++k) {
      model.allocate(id, 3_MiB + 4096 * i, 0);
      model.free(id++);
    }
    EXPECT_EQ(model.reserved_bytes(), 4_MiB);
  }
  EXPECT_LT(model.statistics().planned.plans, 10U);
}

TEST(CachingModelPlanned, GivesNoByteTwice) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 60; ++round) {
    // Iterations that come again with changes: what the trace drops, adds and delays is its own.
    const AllocationTrace once = test::random_trace(random, 80);
    TraceBuilder builder;
    for (int i = 0; i < 8; ++i) {
      builder.begin_iteration();
      std::vector<AllocationId> ids(once.allocations);
      std::vector<bool> live(once.allocations, false);
      for (const TraceOperation& operation : once.operations) {
        if (operation.kind == TraceKind::allocate) {
          if (random() % 40 == 0) continue;
          if (random() % 40 == 0) builder.allocate(operation.bytes);
          ids[operation.id] = builder.allocate(operation.bytes, operation.stream);
          live[operation.id] = true;
        } else if (live[operation.id] && random() % 10 != 0) {
          builder.free(ids[operation.id]);
          live[operation.id] = false;
        }
      }
      for (std::size_t id = 0; id < live.size(); ++id) {
        if (live[id] && random() % 3 != 0) builder.free(ids[id]);
      }
    }
    AllocationTrace trace = std::move(builder).finish();
    if (round % 2 == 1) trace.iterations.clear();
    CachingModel model(4_GiB, true);
    EXPECT_NO_THROW(replay_checked(trace, model)) << round;
  }
}

TEST(CachingModelPlanned, KeepsPlansForBatchSizesThatComeAgain) {
  std::vector<Graph> graphs;
  for (const std::int64_t batch : {2, 3, 2, 3, 3, 2, 2, 3}) {
    GraphBuilder builder;
    ModelConfig config{.layers = 2, .width = 64, .heads = 2};
    config.sequence = 32;
    config.batch = batch;
    const BuiltModel model = gpt(builder, config);
    graphs.push_back(builder.finish(model.loss, AdamW{}));
  }
  const AllocationTrace trace = trace_of_steps(graphs);
  CachingModel model(4_GiB, true);
  replay_checked(trace, model);
  EXPECT_EQ(model.statistics().planned.plans, 2U);
  EXPECT_LE(model.statistics().planned.misses, 20U);  // of the second iteration alone
}

class PublicTraces : public ::testing::TestWithParam<const char*> {};

TEST_P(PublicTraces, TakeAHundredthMoreThanIsLiveOncePlanned) {
  const auto path = std::filesystem::path(STOWAGE_TEST_DATA) / "placement" / GetParam();
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
  std::ifstream file(path);
  std::string line;
  std::vector<PlacementItem> items;
  while (std::getline(file, line)) {
    long long first = 0, last = 0;
    unsigned long long bytes = 0;
    if (std::sscanf(line.c_str(), "%*[^,],%lld,%lld,%llu", &first, &last, &bytes) == 3)
      items.push_back({first, last, bytes});
  }
  CachingModel model(4_GiB, true);
  const ReplayResult result = replay_checked(repeated(trace_of_lifetimes(items), 3), model);
  EXPECT_GT(result.warm.operations, 3000U);
  EXPECT_LE(result.warm.ratio(), 1.01);
  EXPECT_EQ(model.statistics().planned.misses, 0U);
}

INSTANTIATE_TEST_SUITE_P(All, PublicTraces, ::testing::Values("resnet50.csv", "G_1.csv"),
                         [](const auto& info) { return std::string(info.param).substr(0, 3); });

}  // namespace
}  // namespace stowage
