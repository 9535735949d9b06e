#include "tools/calibrate/compute_probe.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/expect_refused.h"
#include "tests/tools/calibrate/virtual_machine.h"

namespace stowage {
namespace {

class OpProbeTest : public ::testing::Test {
 protected:
  static Op sum() {
    Op op;
    op.name = "sum";
    op.kernel = "add";
    return op;
  }
  std::unique_ptr<SimulatedDevice> device_ = test::open_virtual_device(test::odd_machine());
  LaunchTable kernels_ = cpu_launch_table();
  Lane lane_{*device_, LaneRole::compute};
  OpProbeContext context_{*device_, kernels_, lane_.id(), test::odd_machine()};
};

TEST_F(OpProbeTest, LaunchesOverDefinedOperandsOfItsOwn) {
  const Tensor tensor = probe_tensor(DataType::f32, {3'000'000});  // more than one piece
  OpProbe probe(context_, sum(), {tensor, tensor}, {tensor});
  EXPECT_EQ(probe.bytes(), 36'000'000U);
  const Bytes held = device_->memory_info().total - device_->memory_info().free;
  EXPECT_GE(held, probe.bytes());
  probe.launch();  // reads of undefined bytes would throw
  probe.launch();
  device_->synchronise_lane(lane_.id());
}

TEST_F(OpProbeTest, RunsTheKernelItIsAsked) {
  static int runs = 0;
  static float least = 0, most = 0;
  runs = 0;
  kernels_.add("look", [](const LaunchArguments& arguments) {
    ++runs;
    ASSERT_EQ(arguments.reads.size(), 1U);
    ASSERT_EQ(arguments.writes.size(), 1U);
    EXPECT_EQ(arguments.op->name, "look");
    const auto* values = static_cast<const float*>(arguments.reads[0].data);
    for (std::int64_t i = 0; i < arguments.reads[0].tensor->elements(); ++i) {
      least = std::min(least, values[i]);
      most = std::max(most, values[i]);
    }
    std::memset(arguments.writes[0].data, 0, arguments.writes[0].tensor->bytes());
  });
  Op op;
  op.name = op.kernel = "look";
  OpProbe probe(context_, op, {probe_tensor(DataType::f32, {1000})}, {probe_tensor(DataType::f64, {})});
  probe.launch();
  device_->synchronise_lane(lane_.id());
  EXPECT_EQ(runs, 1);
  EXPECT_LT(least, -0.9F);
  EXPECT_GE(least, -1.0F);
  EXPECT_GT(most, 0.9F);
  EXPECT_LE(most, 1.0F);
}

TEST_F(OpProbeTest, ReadsWhatAnotherProbeWrites) {
  const auto seen = [](const LaunchArguments& arguments) {
    const float value = *static_cast<const float*>(arguments.reads[0].data) + 1;
    std::memcpy(arguments.writes[0].data, &value, sizeof value);
  };
  static float last = 0;
  last = 0;
  kernels_.add("more", seen);
  kernels_.add("keep", [](const LaunchArguments& arguments) {
    last = *static_cast<const float*>(arguments.reads[0].data);
    std::memset(arguments.writes[0].data, 0, arguments.writes[0].tensor->bytes());
  });
  const Tensor number = probe_tensor(DataType::f32, {1});
  Op op;
  op.name = op.kernel = "more";
  OpProbe first(context_, op, {number}, {number});
  OpProbe second(context_, op, first, {number});
  op.name = op.kernel = "keep";
  OpProbe third(context_, op, second, {probe_tensor(DataType::f64, {})});
  EXPECT_EQ(third.bytes(), 12U) << "of its own and of what it reads";
  for (OpProbe* probe : {&first, &second, &third}) probe->launch();
  device_->synchronise_lane(lane_.id());
  EXPECT_EQ(last, 2) << "the first number of operands is 0";
}

TEST_F(OpProbeTest, RefusesAKernelThatIsNotThere) {
  Op op;
  op.name = op.kernel = "nowhere";
  test::expect_refused([&] { OpProbe(context_, op, {}, {}); }, "nowhere");
}

}  // namespace
}  // namespace stowage
