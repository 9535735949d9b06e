// The same suite on NCCL itself and a real card, which is a group of its own: NCCL takes no card twice.
// Skipped with the reason where there is none.
#include "stowage/cuda_device.h"
#include "tests/communicator/communicator_conformance.h"

namespace stowage {
namespace {

CommunicatorGroup one_card() {
  return {"card", 1, false, [](const std::function<void(TestRank&)>& body) {
            if (const CudaStatus status = cuda_status(); !status.available) GTEST_SKIP() << status.reason;
            const auto device = open_cuda_device({.scratch = 1_MiB});
            const auto communicator = open_nccl_communicator(*device, local_channels(1).front());
            run_rank(*device, *communicator, body);
          }};
}
INSTANTIATE_TEST_SUITE_P(Gpu, CommunicatorConformance, testing::Values(one_card()), group_name);

TEST(NcclCommunicatorGpu, KnowsMemoryAheadAndForgetsIt) {
  if (const CudaStatus status = cuda_status(); !status.available) GTEST_SKIP() << status.reason;
  for (const bool virtual_memory : {true, false}) {
    const auto device = open_cuda_device({.virtual_memory = virtual_memory, .scratch = 1_MiB});
    const auto communicator = open_nccl_communicator(*device, local_channels(1).front());
    const DeviceMemory memory(*device, MemoryKind::device, 64_MiB);
    communicator->register_memory(memory.data(), memory.bytes());
    TestRank rank{*device, *communicator};
    const auto bytes = TestRank::patterns(0, 0, 4096, 1);
    rank.put(memory.data(), bytes);
    rank.order(rank.h2d, rank.lane);
    communicator->exchange(rank.lane.id(), memory.data(), memory.data() + 4096, 4096);
    communicator->all_gather(rank.lane.id(), memory.data() + 4096, 4096);
    communicator->broadcast(rank.lane.id(), 0, memory.data() + 4096, 4096);
    communicator->barrier();
    EXPECT_EQ(rank.get(memory.data() + 4096, 4096), bytes);
    communicator->forget_memory(memory.data());
    communicator->check();
  }
}

TEST(NcclCommunicatorGpu, AnAbortIsFinal) {
  if (const CudaStatus status = cuda_status(); !status.available) GTEST_SKIP() << status.reason;
  const auto device = open_cuda_device({.scratch = 1_MiB});
  const auto communicator = open_nccl_communicator(*device, local_channels(1).front());
  const DeviceMemory memory(*device, MemoryKind::device, 4096);
  TestRank rank{*device, *communicator};
  communicator->all_gather(rank.lane.id(), memory.data(), 4096);
  communicator->abort("as told");
  rank.expect_final(memory.data());
}

}  // namespace
}  // namespace stowage
