#include "tools/calibrate/codec_probe.h"

#include <gtest/gtest.h>

#include "tests/tools/calibrate/virtual_machine.h"

namespace stowage {
namespace {

class CodecProbe : public ::testing::Test {
 protected:
  std::vector<CodecRate> measure(DataType type) {
    return measure_codec({*device_, kernels_, lane_.id(), machine_}, {.elements = 1000, .repetitions = 1},
                         type, machine_.launch_seconds);
  }
  static Machine machine_with_codec() {
    Machine machine = test::odd_machine();
    machine.codec_4_bits = {1e9, 3e9};
    machine.codec_8_bits = {2e9, 5e9};
    return machine;
  }
  Machine machine_ = machine_with_codec();
  std::unique_ptr<SimulatedDevice> device_ = test::open_virtual_device(machine_);
  LaunchTable kernels_ = cpu_launch_table();
  Lane lane_{*device_, LaneRole::compute};
};

TEST_F(CodecProbe, RecoversTheRatesThatOpsFollow) {
  for (const DataType type : {DataType::f32, DataType::bf16, DataType::f16}) {
    const std::vector<CodecRate> found = measure(type);
    ASSERT_EQ(found.size(), 2U);
    for (const CodecRate& rate : found) {
      const CodecRates truth = machine_.codec(rate.bits);
      EXPECT_EQ(rate.type, type);
      EXPECT_NEAR(rate.rates.encode_bytes_per_second / truth.encode_bytes_per_second, 1, 1e-6);
      EXPECT_NEAR(rate.rates.decode_bytes_per_second / truth.decode_bytes_per_second, 1, 1e-6);
    }
    EXPECT_EQ(found[0].bits, CodeBits::four);
    EXPECT_EQ(found[1].bits, CodeBits::eight);
  }
  EXPECT_EQ(device_->memory_info().free, device_->memory_info().total);
}

TEST_F(CodecProbe, MeasuresNothingOfF64) { EXPECT_TRUE(measure(DataType::f64).empty()); }

TEST_F(CodecProbe, MeasuresNothingWhereAKernelIsNotThere) {
  for (const char* only : {"encode", "decode"}) {
    kernels_ = LaunchTable();
    kernels_.add(only, cpu_launch_table().find_if_present(only));
    EXPECT_TRUE(measure(DataType::f32).empty()) << only;
  }
}

TEST_F(CodecProbe, TakesNoMoreBytesThanItSays) {
  const auto small = open_simulated_device({.capacity = 3_MiB, .executor = Executor::virtual_time});
  const Lane lane(*small, LaneRole::compute);
  const CodecProbeOptions options{.elements = std::int64_t{300} << 10U, .repetitions = 1};
  EXPECT_LE(bytes_of(options), 3_MiB);
  EXPECT_EQ(measure_codec({*small, kernels_, lane.id(), machine_}, options, DataType::f32, 0).size(), 2U);
}

}  // namespace
}  // namespace stowage
