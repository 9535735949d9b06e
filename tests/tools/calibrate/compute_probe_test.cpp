#include "tools/calibrate/compute_probe.h"

#include <gtest/gtest.h>

#include "tests/tools/calibrate/virtual_machine.h"

namespace stowage {
namespace {

ComputeProbeOptions small() {
  return {.types = {DataType::f32},
          .repetitions = 1,
          .layer_seconds = 0.5,
          .most_stages = 1,
          .stream_bytes = 1_MiB,
          .launches = 10};
}

MachineFile measure(const Machine& machine, const ComputeProbeOptions& options) {
  const auto device = test::open_virtual_device(machine);
  const LaunchTable kernels = cpu_launch_table();
  const Lane lane(*device, LaneRole::compute);
  MachineFile file;
  measure_compute({*device, kernels, lane.id(), machine}, options, file);
  return file;
}

TEST(ComputeProbe, RecoversTheRatesThatOpsFollow) {
  const Machine machine = test::odd_machine();
  const MachineFile file = measure(machine, small());
  // A tiny op also moves 3 KiB.
  EXPECT_NEAR(file.launch_seconds, machine.launch_seconds + 3072 / machine.device_bytes_per_second, 1e-12);
  EXPECT_NEAR(file.device_bytes_per_second / machine.device_bytes_per_second, 1, 0.01);
  ASSERT_EQ(file.matrix.size(), 1U);
  EXPECT_EQ(file.matrix[0].type, DataType::f32);
  EXPECT_NEAR(file.matrix[0].flops_per_second / machine.flops_per_second, 1, 0.01);
}

TEST(ComputeProbe, MeasuresTheFourProductsOfALayer) {
  const MachineFile file = measure(test::odd_machine(), small());
  std::vector<std::pair<std::int64_t, std::int64_t>> shapes;
  for (const MatrixSample& sample : file.matrix[0].samples) {
    EXPECT_EQ(sample.rows, 512);
    EXPECT_GT(sample.seconds, 0);
    shapes.emplace_back(sample.inner, sample.columns);
  }
  EXPECT_EQ(shapes, (std::vector<std::pair<std::int64_t, std::int64_t>>{
                        {512, 1536}, {512, 512}, {512, 2048}, {2048, 512}}));
}

TEST(ComputeProbe, GrowsOnlyWhileALayerStaysWithinItsTime) {
  // A modelled layer of 2048 tokens and width 1024 takes 24 * 2048 * 1024^2 flops = 15.6 ms.
  const Machine machine = test::odd_machine();
  ComputeProbeOptions options = small();
  options.most_stages = 2;
  options.layer_seconds = 0.015;
  EXPECT_EQ(measure(machine, options).matrix[0].samples.size(), 4U);
  options.layer_seconds = 0.017;
  const MachineFile grown = measure(machine, options);
  ASSERT_EQ(grown.matrix[0].samples.size(), 8U);
  EXPECT_EQ(grown.matrix[0].samples[4].rows, 2048);
  EXPECT_EQ(grown.matrix[0].samples[4].inner, 1024);
}

}  // namespace
}  // namespace stowage
