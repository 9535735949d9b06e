#include "samples/run/run_needs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/error.h"

namespace stowage::samples {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Graph graph_of_a_parameter() {
  Graph graph;
  graph.tensors = {{"w", DataType::f32, {256}, TensorKind::parameter, {}}};
  return graph;
}

Plan some_plan() {
  Plan plan;
  plan.host_bytes = 5000;
  plan.undo_bytes = 1000;
  plan.pinned_bytes = 3000;
  plan.device_peak_bytes = 70;
  return plan;
}

TEST(HostNeed, IsThePlansBytesWithTheCopyAndASimulatedDevice) {
  Options options;
  const HostNeed on_card = host_need(options, graph_of_a_parameter(), some_plan(), true, 1);
  EXPECT_EQ(on_card.buckets, 4000U);
  EXPECT_EQ(on_card.pinned, 3000U);
  EXPECT_EQ(on_card.undo, 1000U);
  EXPECT_EQ(on_card.total(), 5000U);
  options.checkpoint_folder = "somewhere";
  EXPECT_EQ(host_need(options, graph_of_a_parameter(), some_plan(), false, 1).total(), 5000U + 1024 + 70);
  EXPECT_EQ(host_need(options, graph_of_a_parameter(), some_plan(), false, 4).total(), 4 * 5070U + 1024);
  options.trains_nothing = true;  // and saves nothing
  EXPECT_EQ(host_need(options, graph_of_a_parameter(), some_plan(), false, 1).total(), 5000U + 70);
}

std::string refusal(const HostNeed& need, const std::vector<HostLimit>& limits) {
  try {
    require_host_memory(need, limits);
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.requested_bytes(), need.total());
    return error.what();
  }
  return "";
}

TEST(HostNeed, FitsUpToTheTightestLimit) {
  const HostNeed need{.buckets = 60, .undo = 20, .copy = 15, .device = 5};
  EXPECT_EQ(refusal(need, {}), "");
  EXPECT_EQ(refusal(need, {{"one", 100, ""}, {"other", 1000, ""}}), "");
  EXPECT_THAT(refusal(need, {{"one", 1000, "x"}, {"other", 99, "set y"}, {"third", 100, "z"}}),
              HasSubstr("100 B (100 bytes) needed, 99 B (99 bytes) left of other: "));
}

TEST(HostNeed, IsRefusedWithItsPartsAndWhatToSet) {
  const HostNeed need{.buckets = 6_GiB, .pinned = 2_GiB, .undo = 1_GiB, .copy = 512_MiB, .device = 256_MiB};
  EXPECT_THAT(
      refusal(need, {{"the pool", 4_GiB, "fill it"}}),
      AllOf(HasSubstr("7.75 GiB (8321499136 bytes) needed, 4.00 GiB (4294967296 bytes) left of the pool"),
            HasSubstr("6.00 GiB for the plan's buckets (2.00 GiB page-locked), 1.00 GiB for undo records"),
            HasSubstr(
                "512.00 MiB for the copy that checkpoints are written from, 256.00 MiB for the simulated"),
            HasSubstr("To go on, fill it, or take no copy with --checkpoint-blocking, or have the planner "
                      "look for a plan within it: --host-memory 3840MiB")));
}

// Where no budget would do, none is proposed.
TEST(HostNeed, ProposesNoBudgetWithoutRoom) {
  const HostNeed need{.buckets = 6_GiB, .copy = 512_MiB, .device = 1_GiB};
  for (const Bytes room : {Bytes{0}, 1_GiB, 1_GiB + 512_MiB})
    EXPECT_THAT(refusal(need, {{"it", room, "do"}}), Not(HasSubstr("--host-memory")));
  EXPECT_THAT(refusal({.buckets = 10}, {{"it", 5, "do"}}), Not(HasSubstr("--")));
}

}  // namespace
}  // namespace stowage::samples
