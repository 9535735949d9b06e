#include "tools/calibrate/calibrate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/machine/sample_file.h"

namespace stowage {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Contradictions, AreNotInWhatACardGave) {
  for (const char* record :
       {"2026-11-26-gpu-check-h100", "2026-11-26-gpu-check-h200", "2026-11-27-gpu-check-h200-third"})
    EXPECT_THAT(contradictions(read_machine_file(STOWAGE_ROOT "/bench/results/" + std::string(record) +
                                                 "/machine.json")),
                IsEmpty())
        << record;
}

TEST(Contradictions, AreTheWorstOfEachCurve) {
  MachineFile file;
  file.h2d.samples = {{1_MiB, 1e-4}, {4_MiB, 1e-3}, {16_MiB, 1e-2}, {64_MiB, 1e-2}};
  file.d2h.samples = {{1_MiB, 1e-4}, {4_MiB, 7e-4}};
  file.matrix = {{DataType::f32, 1e9, {{64, 64, 64, 1e-6}, {128, 64, 64, 1e-5}, {64, 128, 32, 1e-3}}}};
  file.host_rates = {{1, 1e10}, {2, 4e9}, {4, 2e10}};
  EXPECT_THAT(contradictions(file),
              ElementsAre("h2d: 1.00 MiB at 10.5 GB/s, but 16.00 MiB at 1.7",
                          "f32 products: 64 x 64 x 64 at 524.3 GFLOP/s, but 128 x 64 x 64 at 104.9",
                          "host memory: 1 thread at 10.0 GB/s, but 2 threads at 4.0"));
}

}  // namespace
}  // namespace stowage
