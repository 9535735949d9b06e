#include <gtest/gtest.h>

#include "samples/run/run_device.h"

namespace stowage::samples {
namespace {

TEST(ShareHost, EachSimulatedDeviceHasItsPartOfTheCores) {
  RunDevice run;
  run.shares_host = true;
  run.machine.device_bytes_per_second = 60;
  run.machine.codec_4_bits = {20, 40};
  run.machine.codec_8_bits = {24, 44};
  Graph graph;
  graph.ops.resize(1);
  graph.ops[0].cost.seconds = 3;
  share_host(run, 4, graph);
  EXPECT_EQ(run.machine.device_bytes_per_second, 15);
  EXPECT_EQ(run.machine.codec_4_bits.encode_bytes_per_second, 5);
  EXPECT_EQ(run.machine.codec_4_bits.decode_bytes_per_second, 10);
  EXPECT_EQ(run.machine.codec_8_bits.encode_bytes_per_second, 6);
  EXPECT_EQ(run.machine.codec_8_bits.decode_bytes_per_second, 11);
  EXPECT_EQ(graph.ops[0].cost.seconds, 12);
}

}  // namespace
}  // namespace stowage::samples
