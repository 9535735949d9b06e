#include "src/graph/cost.h"

#include <gtest/gtest.h>

namespace stowage {
namespace {

Machine odd_machine() {
  Machine machine;
  machine.flops_per_second = 100;
  machine.device_bytes_per_second = 10;
  machine.launch_seconds = 1;
  machine.codec_4_bits = {2, 4};
  machine.codec_8_bits = {5, 8};
  return machine;
}

Op codec_op(const char* kernel, std::int64_t bits) {
  Op op;
  op.kernel = kernel;
  op.attributes = {{"bits", bits}};
  op.cost.bytes = 40;
  return op;
}

TEST(OpSeconds, OpsOfTheCodecHaveItsRates) {
  const Machine machine = odd_machine();
  EXPECT_EQ(op_seconds(codec_op("encode", 4), machine), 1 + 40 / 2.0);
  EXPECT_EQ(op_seconds(codec_op("decode", 4), machine), 1 + 40 / 4.0);
  EXPECT_EQ(op_seconds(codec_op("encode", 8), machine), 1 + 40 / 5.0);
  EXPECT_EQ(op_seconds(codec_op("decode", 8), machine), 1 + 40 / 8.0);
  EXPECT_EQ(op_seconds(codec_op("add", 4), machine), 1 + 40 / 10.0);
}

TEST(OpSeconds, AnUnknownCodecHasSharesOfDeviceMemory) {
  Machine machine = odd_machine();
  machine.codec_4_bits = machine.codec_8_bits = {};
  for (const std::int64_t bits : {4, 8}) {
    EXPECT_DOUBLE_EQ(op_seconds(codec_op("encode", bits), machine), 1 + 40 / 5.0);
    EXPECT_DOUBLE_EQ(op_seconds(codec_op("decode", bits), machine), 1 + 40 / 9.0);
  }
  machine.codec_4_bits.decode_bytes_per_second = 4;  // known alone
  EXPECT_EQ(op_seconds(codec_op("decode", 4), machine), 1 + 40 / 4.0);
  EXPECT_DOUBLE_EQ(op_seconds(codec_op("encode", 4), machine), 1 + 40 / 5.0);
}

TEST(OpSeconds, AMeasuredTimeReplacesTheRates) {
  Op op = codec_op("encode", 4);
  op.cost.seconds = 7;
  EXPECT_EQ(op_seconds(op, odd_machine()), 7);
  EXPECT_EQ(seconds_by_rates(op, odd_machine()), 1 + 40 / 2.0);
}

// Graphs from outside may have ops that no kernel takes.
TEST(OpSeconds, AnOpOfTheCodecWithoutBitsHasATime) {
  Op op = codec_op("encode", 4);
  op.attributes = {{"bits", "4"}};
  EXPECT_GT(op_seconds(op, odd_machine()), 1);
  op.attributes.clear();
  EXPECT_GT(op_seconds(op, odd_machine()), 1);
}

}  // namespace
}  // namespace stowage
