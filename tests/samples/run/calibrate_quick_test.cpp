#include "samples/run/calibrate_quick.h"

#include <gtest/gtest.h>

#include <vector>

#include "stowage/models.h"

namespace stowage::samples {
namespace {

TEST(CalibrateQuick, GivesPositiveRatesAndTheLink) {
  const Link link{.bytes_per_second = 123, .latency_seconds = 4, .throttled = true};
  struct Case {
    const ModelFamily* family;
    std::int64_t width;
    DataType type = DataType::f32;
  };
  for (const auto& [family, width, type] : {Case{&gpt_family, 8}, Case{&gpt_family, 3072},
                                            Case{&bert_family, 8}, Case{&gpt_family, 8, DataType::bf16}}) {
    const Calibration calibration = calibrate_quick(
        *family, {.layers = 3, .width = width, .heads = 1, .sequence = 4, .batch = 2}, type, {}, link, {});
    const Machine& machine = calibration.machine;
    EXPECT_GT(machine.flops_per_second, 0);
    EXPECT_GT(machine.device_bytes_per_second, 0);
    EXPECT_GT(machine.host_bytes_per_second, 0);
    for (const CodecRates& codec : {machine.codec_4_bits, machine.codec_8_bits}) {
      EXPECT_GT(codec.encode_bytes_per_second, 0);
      EXPECT_GT(codec.decode_bytes_per_second, 0);
    }
    EXPECT_FALSE(calibration.profile.empty());
    EXPECT_EQ(machine.compute_beside_copy, 1) << "a link that hardly copies";
    for (const double kept : {machine.compute_beside_host, machine.host_beside_compute}) {
      EXPECT_GT(kept, 0);
      EXPECT_LE(kept, 1);
    }
    EXPECT_EQ(machine.h2d.bytes_per_second, 123);
    EXPECT_EQ(machine.d2h.latency_seconds, 4);
  }
}

}  // namespace
}  // namespace stowage::samples
