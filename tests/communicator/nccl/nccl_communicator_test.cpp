// Communicators over NCCL, on fakes of NCCL and CUDA. Ranks are threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <thread>

#include "stowage/channel.h"
#include "stowage/cuda_device.h"
#include "tests/communicator/communicator_conformance.h"
#include "tests/fake_cuda/fake_cuda.h"

namespace stowage {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class NcclRanks {
 public:
  explicit NcclRanks(int size) : channels_(local_channels(size)) {
    fake_cuda_reset();
    fake_cuda_set_cards(size);
  }
  // Each rank opens its card and its communicator, and calls `body(device, communicator)`.
  template <class Body>
  void each(Body&& body) {
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < channels_.size(); ++i)
      threads.emplace_back([&, i] {
        const auto device = open_cuda_device({.ordinal = static_cast<int>(i), .scratch = 1_MiB});
        const auto communicator = open_nccl_communicator(*device, channels_[i]);
        body(*device, *communicator);
      });
    for (std::thread& thread : threads) thread.join();
  }
  void run(const std::function<void(TestRank&)>& body) {
    each([&](Device& device, Communicator& communicator) { run_rank(device, communicator, body); });
  }

 private:
  std::vector<std::shared_ptr<Channel>> channels_;
};

std::vector<CommunicatorGroup> nccl_groups() {
  std::vector<CommunicatorGroup> groups;
  for (const int size : {1, 2, 4})
    groups.push_back({"ranks_" + std::to_string(size), size, false,
                      [=](const std::function<void(TestRank&)>& body) { NcclRanks(size).run(body); }});
  return groups;
}
INSTANTIATE_TEST_SUITE_P(Nccl, CommunicatorConformance, testing::ValuesIn(nccl_groups()), group_name);

TEST(NcclCommunicator, KnowsMemoryAheadAndForgetsIt) {
  NcclRanks(2).run([](TestRank& r) {
    const DeviceMemory memory(r.device, MemoryKind::device, 1024);
    r.communicator.register_memory(memory.data(), memory.bytes());
    r.communicator.barrier();
  });
  EXPECT_EQ(fake_cuda_calls("ncclCommRegister"), 2u);
  EXPECT_EQ(fake_cuda_calls("ncclCommDeregister"), 2u);
  EXPECT_EQ(fake_cuda_calls("ncclCommFinalize"), 2u);
}

TEST(NcclCommunicator, ForgetsMemoryOnceAndOnlyWhatItKnows) {
  NcclRanks(1).run([](TestRank& r) {
    const DeviceMemory memory(r.device, MemoryKind::device, 1024);
    r.communicator.register_memory(memory.data(), memory.bytes());
    r.communicator.forget_memory(memory.data());
    EXPECT_EQ(fake_cuda_calls("ncclCommDeregister"), 1u);
    EXPECT_THROW(r.communicator.forget_memory(memory.data()), InvalidInput);
    EXPECT_THROW(r.communicator.check(), CommunicatorError);
    r.communicator.forget_memory(memory.data());  // nothing is left to do
  });
  EXPECT_EQ(fake_cuda_calls("ncclCommDeregister"), 1u);
}

// NCCL reads and writes the memory until it has aborted: who releases it then must not do so earlier.
TEST(NcclCommunicator, MemoryIsForgottenOnlyOnceAnAbortHasEnded) {
  struct Forgetting {
    Communicator* communicator = nullptr;
    void* memory = nullptr;
    std::future<void> done;
    bool ended_before_the_abort = true;
  };
  NcclRanks(1).run([](TestRank& r) {
    const DeviceMemory memory(r.device, MemoryKind::device, 1024);
    r.communicator.register_memory(memory.data(), memory.bytes());
    Forgetting forgetting{&r.communicator, memory.data(), {}};
    const auto forget = [](void* context) {
      auto& it = *static_cast<Forgetting*>(context);
      it.done = std::async(std::launch::async, [&it] { it.communicator->forget_memory(it.memory); });
      constexpr std::chrono::milliseconds long_enough{200};  // for a call that waits for nothing
      it.ended_before_the_abort = it.done.wait_for(long_enough) == std::future_status::ready;
    };
    fake_cuda_during_call("ncclCommAbort", forget, &forgetting);
    r.communicator.abort("enough");
    forgetting.done.get();
    EXPECT_FALSE(forgetting.ended_before_the_abort);
  });
}

TEST(NcclCommunicator, MemoryThatCannotBeForgottenIsAnErrorOfAll) {
  NcclRanks(2).run([](TestRank& r) {
    const DeviceMemory memory(r.device, MemoryKind::device, 1024);
    const auto error = r.failure_behind([&] {
      r.communicator.register_memory(memory.data(), memory.bytes());
      if (r.rank == 1) {
        fake_cuda_fail_call("ncclCommDeregister", 1, 0);
        r.communicator.forget_memory(memory.data());
      }
      r.communicator.barrier();
    });
    ASSERT_TRUE(error);
    EXPECT_THAT(error->what(), HasSubstr("rank 1 failed in forget_memory"));
  });
}

TEST(NcclCommunicator, ACallThatFailsIsNamedOnAllRanks) {
  for (const char* const call : {"ncclAllGather", "ncclBroadcast", "ncclGroupStart", "ncclSend", "ncclRecv",
                                 "ncclGroupEnd", "ncclCommRegister"})
    NcclRanks(2).run([&](TestRank& r) {
      const DeviceMemory from(r.device, MemoryKind::device, 64), to(r.device, MemoryKind::device, 64);
      const auto error = r.failure_behind([&] {
        if (r.rank == 1) fake_cuda_fail_call(call, 1, 0);  // on whichever rank makes it
        r.communicator.register_memory(from.data(), 64);
        r.communicator.exchange(r.lane.id(), from.data(), to.data(), 8);
        r.communicator.broadcast(r.lane.id(), 0, from.data(), 8);
        r.communicator.barrier();
      });
      ASSERT_TRUE(error) << call;
      EXPECT_THAT(error->what(), HasSubstr("internal error"));
    });
}

// NCCL may find an error while all ranks live, such as of the network: then work on the cards ends no more by
// itself, and no rank tells the others. Both ranks wait here as engines do, without a look at the
// communicator.
TEST(NcclCommunicator, AnErrorThatNobodyAsksForEndsTheWaitsOfAll) {
  std::promise<void> enqueued, ended;
  NcclRanks(2).run([&](TestRank& r) {
    const DeviceMemory memory(r.device, MemoryKind::device, 64);
    if (r.rank == 0) {
      r.communicator.all_gather(r.lane.id(), memory.data(), 32);
      enqueued.set_value();
      TestRank::ignoring_errors([&] { r.synchronise(); });  // the other one never comes
      ended.set_value();
    } else {
      enqueued.get_future().wait();
      fake_cuda_fail_call("ncclCommGetAsyncError", 1, 0);
      if (ended.get_future().wait_for(std::chrono::seconds(60)) != std::future_status::ready)
        r.communicator.abort("rank 0 waits for ever");
    }
    // The other's word of it may come a little later.
    auto error = r.failure();
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    for (; !error && std::chrono::steady_clock::now() < end; error = r.failure()) std::this_thread::yield();
    ASSERT_TRUE(error);
    EXPECT_THAT(error->what(), HasSubstr("NCCL answers 'internal error'"));
  });
}

TEST(NcclCommunicator, RefusesOtherDevicesAndNoChannel) {
  fake_cuda_reset();
  const auto simulated = open_simulated_device({.capacity = 1_MiB});
  const auto cuda = open_cuda_device();
  const std::shared_ptr<Channel> alone = local_channels(1).front();
  EXPECT_THROW(open_nccl_communicator(*simulated, alone), InvalidInput);
  EXPECT_THROW(open_nccl_communicator(*cuda, nullptr), InvalidInput);
  open_nccl_communicator(*cuda, alone)->barrier();
}

TEST(NcclCommunicator, ACallThatFailsAtOpeningIsAnError) {
  for (const char* const call : {"ncclGetUniqueId", "ncclCommInitRankConfig", "ncclCommGetAsyncError"}) {
    fake_cuda_reset();
    const auto device = open_cuda_device();
    fake_cuda_fail_call(call, 1, 0);
    try {
      open_nccl_communicator(*device, local_channels(1).front());
      ADD_FAILURE() << call << " failed unnoticed";
    } catch (const CommunicatorError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("open_nccl_communicator"), HasSubstr("internal error")));
    }
  }
}

}  // namespace
}  // namespace stowage
