#include "tools/calibrate/step_probe.h"

#include <gtest/gtest.h>

#include "src/graph/cost.h"
#include "stowage/graph_builder.h"
#include "stowage/models.h"
#include "stowage/planner.h"
#include "stowage/simulated_device.h"
#include "tests/tools/calibrate/virtual_machine.h"

namespace stowage {
namespace {

ProbedStep step_of(std::int64_t samples) {
  GraphBuilder builder;
  const BuiltModel model =
      gpt(builder, {.layers = 1, .width = 8, .heads = 2, .vocabulary = 16, .sequence = 4, .batch = samples});
  return {builder.finish(model.loss, AdamW{}), model.inputs};
}

// Numbers of samples that were tried.
struct Tried {
  std::vector<std::int64_t> samples;
  OpProfile profile;
};

Tried profile_in(const Machine& rates, Bytes most_bytes, std::int64_t samples) {
  const auto device = test::open_virtual_device(test::odd_machine());
  Tried tried;
  tried.profile = profile_of_step(*device, rates, {.device = most_bytes}, samples, [&](std::int64_t count) {
    tried.samples.push_back(count);
    return step_of(count);
  });
  EXPECT_EQ(device->memory_info().free, device->memory_info().total);
  return tried;
}

TEST(OwnProfile, KnowsTheOpsOfTheStepItself) {
  const Tried tried = profile_in(Machine{}, unlimited, 4);
  EXPECT_EQ(tried.samples, (std::vector<std::int64_t>{4}));
  EXPECT_FALSE(tried.profile.empty());
}

TEST(OwnProfile, MeasuresTheWholeBatchInLittleMemory) {
  const Bytes least = minimum_bytes(step_of(4).graph, Machine{});
  EXPECT_EQ(profile_in(Machine{}, least, 4).samples, (std::vector<std::int64_t>{4}));
  const Tried less = profile_in(Machine{}, least - 1, 4);
  EXPECT_EQ(less.samples, (std::vector<std::int64_t>{4, 2}));
  EXPECT_FALSE(less.profile.empty());
}

TEST(OwnProfile, TakesFewerSamplesWhereTheyTakeLong) {
  Machine slow;
  slow.launch_seconds = 0;
  const double faster = seconds_by_rates(step_of(2).graph, slow) / 0.09;  // than two samples in 90 ms
  slow.flops_per_second *= faster;
  slow.device_bytes_per_second *= faster;
  EXPECT_EQ(profile_in(slow, unlimited, 8).samples, (std::vector<std::int64_t>{8, 4, 2}));
}

TEST(OwnProfile, KeepsToWhatARunHasOfTheDevice) {
  const auto device = open_simulated_device({.capacity = 100_MiB});
  EXPECT_EQ(arena_within(*device, unlimited, 0), 100_MiB);
  EXPECT_EQ(arena_within(*device, unlimited, 30_MiB), 70_MiB) << "context and libraries are still to come";
  EXPECT_EQ(arena_within(*device, 50_MiB, 30_MiB), 20_MiB);
  EXPECT_EQ(arena_within(*device, 20_MiB, 30_MiB), 0U);
}

TEST(OwnProfile, IsEmptyWhereOneSampleIsTooMuch) {
  const Tried tried = profile_in(Machine{}, 100, 2);
  EXPECT_EQ(tried.samples, (std::vector<std::int64_t>{2, 1}));
  EXPECT_TRUE(tried.profile.empty());
}

}  // namespace
}  // namespace stowage
