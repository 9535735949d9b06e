#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <exception>
#include <thread>

#include "tests/communicator/communicator_conformance.h"
#include "tests/communicator/local_ranks.h"
#include "tests/device/simulated/executors.h"

namespace stowage {
namespace {

using testing::HasSubstr;

std::vector<CommunicatorGroup> local_groups() {
  std::vector<CommunicatorGroup> groups;
  for (const Executor executor : {Executor::threaded, Executor::virtual_time})
    for (const int size : {1, 2, 4, 8})
      groups.push_back({executor_name(executor) + "_" + std::to_string(size), size, true,
                        [=](const std::function<void(TestRank&)>& body) {
                          LocalRanks(size, {.capacity = 4_MiB, .executor = executor}).run(body);
                        }});
  return groups;
}
INSTANTIATE_TEST_SUITE_P(Local, CommunicatorConformance, testing::ValuesIn(local_groups()), group_name);

class LocalCommunicator : public testing::TestWithParam<Executor> {
 protected:
  SimulatedOptions options{.capacity = 1_MiB, .executor = GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Executors, LocalCommunicator, both_executors(),
                         [](const auto& info) { return executor_name(info.param); });

void read(TestRank& r, const std::byte* at, Bytes bytes) {
  const Access access{const_cast<std::byte*>(at), bytes, AccessMode::read};
  r.device.launch(r.lane.id(), {"read", [](void*) {}, nullptr, {&access, 1}});
}

TEST_P(LocalCommunicator, UndefinedBytesArriveAsSuch) {
  LocalRanks(3, options).run([](TestRank& r) {
    // Of each piece of 8 bytes, rank 1 has defined the first 5 alone.
    const DeviceMemory from(r.device, MemoryKind::device, 24), to(r.device, MemoryKind::device, 24);
    for (Bytes piece = 0; piece < 3; ++piece)
      r.put(from.data() + 8 * piece, r.patterns(r.rank, 0, r.rank == 1 ? 5 : 8, 0));
    r.communicator.exchange(r.lane.id(), from.data(), to.data(), 8);
    read(r, to.data(), 13);
    read(r, to.data() + 16, 8);
    EXPECT_THROW(read(r, to.data() + 12, 2), AccessViolation);
    // Of its share it has 3.
    const DeviceMemory whole(r.device, MemoryKind::device, 24);
    r.put(whole.data() + 8 * r.rank, r.patterns(r.rank, 0, r.rank == 1 ? 3 : 8, 0));
    r.communicator.all_gather(r.lane.id(), whole.data(), 8);
    read(r, whole.data(), 11);
    read(r, whole.data() + 16, 8);
    EXPECT_THROW(read(r, whole.data() + 10, 2), AccessViolation);
    r.synchronise();
  });
}

TEST_P(LocalCommunicator, AMismatchThrowsAtTheCall) {
  LocalRanks(2, options).run([](TestRank& r) {
    const DeviceMemory pinned(r.device, MemoryKind::pinned, 64);
    EXPECT_THROW(r.communicator.all_gather(r.lane.id(), pinned.data(), r.rank == 0 ? 8 : 9),
                 CommunicatorError);
  });
}

TEST_P(LocalCommunicator, ARankThatHasEndedIsNotWaitedFor) {
  LocalRanks ranks(2, options);
  ranks.communicators[1].reset();
  EXPECT_NO_THROW(ranks.communicators[0]->check());
  try {
    ranks.communicators[0]->barrier();
    FAIL() << "one rank alone is no two";
  } catch (const CommunicatorError& error) {
    EXPECT_EQ(error.failed_rank(), 1);
    EXPECT_EQ(error.call(), "barrier");
    EXPECT_THAT(error.what(), HasSubstr("ended"));
  }
}

TEST_P(LocalCommunicator, AnAbortReachesARankThatWaitsAtItsCall) {
  LocalRanks ranks(2, options);
  std::thread waiting([&] {
    const Lane lane(*ranks.devices[0], LaneRole::compute);
    const DeviceMemory pinned(*ranks.devices[0], MemoryKind::pinned, 16);
    EXPECT_THROW(ranks.communicators[0]->all_gather(lane.id(), pinned.data(), 8), CommunicatorError);
  });
  ranks.communicators[1]->abort("no more");
  waiting.join();
}

TEST(LocalCommunicators, RefuseWhatIsNoGroup) {
  const auto device = open_simulated_device({.capacity = 1_MiB});
  EXPECT_THROW(make_local_communicators({}), InvalidInput);
  EXPECT_THROW(make_local_communicators(std::vector<Device*>{device.get(), nullptr}), InvalidInput);
  EXPECT_THROW(make_local_communicators(std::vector<Device*>{device.get(), device.get()}), InvalidInput);
}

// Three lanes come at 1, 2 and 3 s. Each receives 2 shares of 1,000 bytes at 1,000 bytes per second.
TEST(LocalCommunicators, InVirtualTimeAllEndTogether) {
  LocalRanks ranks(3, {.capacity = 1_MiB, .executor = Executor::virtual_time}, {.peer = {1000, 0.5, true}});
  ranks.run([](TestRank& r) {
    const DeviceMemory pinned(r.device, MemoryKind::pinned, 3000);
    const Event begin(r.device), gathered(r.device), cast(r.device), exchanged(r.device);
    r.device.record(begin.id(), r.lane.id());
    r.device.launch(r.lane.id(), {"work", [](void*) {}, nullptr, {}, 1.0 + r.rank});
    r.communicator.all_gather(r.lane.id(), pinned.data(), 1000);
    r.device.record(gathered.id(), r.lane.id());
    r.communicator.broadcast(r.lane.id(), 1, pinned.data(), 3000);
    r.device.record(cast.id(), r.lane.id());
    r.communicator.exchange(r.lane.id(), pinned.data(), pinned.data() + 1500, 500);
    r.device.record(exchanged.id(), r.lane.id());
    r.synchronise();
    EXPECT_DOUBLE_EQ(r.device.elapsed_seconds(begin.id(), gathered.id()), 3 + 2.5);
    EXPECT_DOUBLE_EQ(r.device.elapsed_seconds(gathered.id(), cast.id()), 3.5);
    EXPECT_DOUBLE_EQ(r.device.elapsed_seconds(cast.id(), exchanged.id()), 1.5);
  });
}

TEST(LocalCommunicators, AThrottledLinkTakesItsTimeAtLeast) {
  const Link peer{1e6, 1e-3, true};
  LocalRanks(2, {.capacity = 1_MiB}, {.peer = peer}).run([&](TestRank& r) {
    const DeviceMemory pinned(r.device, MemoryKind::pinned, 2000);
    const Event begin(r.device), end(r.device);
    r.device.record(begin.id(), r.lane.id());
    r.communicator.all_gather(r.lane.id(), pinned.data(), 1000);
    r.device.record(end.id(), r.lane.id());
    r.synchronise();
    EXPECT_GE(r.device.elapsed_seconds(begin.id(), end.id()), peer.seconds(1000) * (1 - 1e-12));
  });
}

// Whoever sends may have ended with its memory as soon as its work is done: never while another reads it.
TEST(LocalCommunicators, MemoryIsReadOnlyWhileItsOwnersWorkLasts) {
  LocalRanks(4, {.capacity = 4_MiB}).run([](TestRank& r) {
    for (int round = 0; round < 50; ++round) {
      const DeviceMemory memory(r.device, MemoryKind::device, 4 * 4096);
      r.put(memory.data() + static_cast<Bytes>(r.rank) * 4096, r.patterns(r.rank, 0, 4096, round));
      try {  // what comes behind an abort fails, the call or the work
        r.communicator.all_gather(r.lane.id(), memory.data(), 4096);
        if (r.rank == round % 4 && round > 40) r.communicator.abort("enough");
        r.synchronise();
      } catch (const Error&) {
        return;
      }
      if (r.failure()) return;
    }
  });
}

}  // namespace
}  // namespace stowage
