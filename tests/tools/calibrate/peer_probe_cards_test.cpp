// The peer probe on CUDA cards, over NCCL: fakes of both.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "stowage/cuda_device.h"
#include "stowage/error.h"
#include "tests/fake_cuda/fake_cuda.h"
#include "tools/calibrate/link_probe.h"
#include "tools/calibrate/peer_probe.h"

namespace stowage {
namespace {

constexpr PeerProbeOptions small{
    .smallest = 16_KiB, .largest = 256_KiB, .repetitions = 1, .piece = 64_KiB, .copies = 2};

class PeerProbeCards : public ::testing::Test {
 protected:
  PeerProbeCards() {
    fake_cuda_reset();
    fake_cuda_set_cards(2);
    for (int i = 0; i < 2; ++i) {
      cards_.push_back(open_cuda_device({.ordinal = i, .scratch = 1_MiB}));
      all_.push_back(cards_.back().get());
    }
    measure_link(*all_.front(), {.smallest = 16_KiB, .largest = 128_KiB, .repetitions = 1}, file_);
  }
  void TearDown() override {
    cards_.clear();
    const fake_cuda_live_objects live = fake_cuda_live();
    EXPECT_EQ(live.device_allocations + live.pinned_allocations + live.physical_allocations, 0U);
    EXPECT_EQ(live.streams + live.events, 0U);
  }
  std::vector<std::unique_ptr<Device>> cards_;
  std::vector<Device*> all_;
  MachineFile file_;
};

TEST_F(PeerProbeCards, MeasuresOverNcclAndGivesAllBack) {
  const PeerDevices found = measure_peers(all_, {}, small, file_);
  EXPECT_EQ(found.devices, 2);
  EXPECT_EQ(found.gathers.size(), 5U);
  EXPECT_EQ(found.exchanges.size(), 5U);
  for (const auto& samples : {found.gathers, found.exchanges})
    for (const CopySample& sample : samples) EXPECT_GT(sample.seconds, 0);
  EXPECT_GT(found.link.bytes_per_second, 0);
  ASSERT_TRUE(found.together);
  EXPECT_GT(found.together->d2h_both, 0);
  // Each rank: five sizes, each once to warm up and once in earnest, behind a small one; exchanges too.
  EXPECT_GE(fake_cuda_calls("ncclAllGather"), 2U * 5 * 2 * 3);
  EXPECT_EQ(fake_cuda_calls("ncclCommInitRankConfig"), 2U);
  EXPECT_EQ(fake_cuda_calls("ncclCommFinalize"), 2U);
}

// NCCL's communicators end together: each waits for the others there. So they do where the probe cannot be
// made.
TEST_F(PeerProbeCards, CommunicatorsEndTogetherWhereACardHasNoMemory) {
  bool both_end = false;
  const auto await_the_other = [](void* context) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    // This call counts once it goes on.
    while (fake_cuda_calls("ncclCommFinalize") == 0 && std::chrono::steady_clock::now() < end)
      std::this_thread::yield();
    *static_cast<bool*>(context) = fake_cuda_calls("ncclCommFinalize") == 1;
  };
  fake_cuda_during_call("ncclCommFinalize", await_the_other, &both_end);
  PeerProbeOptions options = small;
  options.largest = 1024_GiB;
  EXPECT_THROW(measure_peers(all_, {}, options, file_), OutOfMemory);
  EXPECT_TRUE(both_end);
}

TEST_F(PeerProbeCards, AFailedCollectiveIsAnErrorOfAll) {
  fake_cuda_fail_call("ncclAllGather", 7, 0);
  EXPECT_THROW(measure_peers(all_, {}, small, file_), CommunicatorError);
}

}  // namespace
}  // namespace stowage
