// The suite of all communicators over TCP, and what is TCP's own: blocks that no socket buffer holds, ranks
// that die or end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/communicator/communicator_conformance.h"
#include "tests/communicator/tcp_ranks.h"
#include "tests/device/simulated/executors.h"

namespace stowage {
namespace {

using ::testing::HasSubstr;

std::vector<CommunicatorGroup> tcp_groups() {
  std::vector<CommunicatorGroup> groups;
  for (const Executor executor : {Executor::threaded, Executor::virtual_time})
    for (const int size : {1, 2, 4})
      groups.push_back({executor_name(executor) + "_" + std::to_string(size), size, true,
                        [=](const std::function<void(TestRank&)>& body) {
                          run_over_tcp(size, {.capacity = 4_MiB, .executor = executor}, body);
                        }});
  return groups;
}
INSTANTIATE_TEST_SUITE_P(Tcp, CommunicatorConformance, ::testing::ValuesIn(tcp_groups()), group_name);

// Each rank sends to all before it has received anything.
TEST(TcpCommunicator, BlocksLargerThanSocketBuffersArriveWhole) {
  constexpr Bytes piece = 20'000'001;
  const auto piece_of = [](int from, int to) {
    return std::vector<std::byte>(piece, static_cast<std::byte>(1 + 3 * from + to));
  };
  run_over_tcp(3, {.capacity = 1_MiB}, [&](TestRank& r) {
    const DeviceMemory from(r.device, MemoryKind::pinned, 3 * piece),
        to(r.device, MemoryKind::pinned, 3 * piece);
    for (int q = 0; q < r.size; ++q)
      std::ranges::copy(piece_of(r.rank, q), from.data() + static_cast<Bytes>(q) * piece);
    r.communicator.exchange(r.lane.id(), from.data(), to.data(), piece);
    r.synchronise();
    for (int q = 0; q < r.size; ++q)
      EXPECT_TRUE(std::ranges::equal(piece_of(q, r.rank),
                                     std::span(to.data() + static_cast<Bytes>(q) * piece, piece)));
  });
}

// The lanes come at 1, 2 and 3 s.
TEST(TcpCommunicator, InVirtualTimeAllEndTogether) {
  run_over_tcp(3, {.capacity = 1_MiB, .executor = Executor::virtual_time},
               [](TestRank& r) {
                 const DeviceMemory pinned(r.device, MemoryKind::pinned, 3000);
                 const Event begin(r.device), gathered(r.device);
                 r.device.record(begin.id(), r.lane.id());
                 r.device.launch(r.lane.id(), {"work", [](void*) {}, nullptr, {}, 1.0 + r.rank});
                 r.communicator.all_gather(r.lane.id(), pinned.data(), 1000);
                 r.device.record(gathered.id(), r.lane.id());
                 r.synchronise();
                 EXPECT_DOUBLE_EQ(r.device.elapsed_seconds(begin.id(), gathered.id()), 3 + 2.5);
               },
               {.peer = {1000, 0.5, true}});
}

TEST(TcpCommunicator, ARankThatHasEndedIsNotWaitedFor) {
  const ReservedPort port;
  in_threads(3, [&](int rank) {
    const auto device = open_simulated_device({.capacity = 1_MiB});
    auto communicator = open_tcp_communicator(*device, tcp_group(rank, 3, port));
    communicator->barrier();
    if (rank == 0) return communicator.reset();
    try {
      communicator->barrier();
      ADD_FAILURE() << "rank " << rank;
    } catch (const CommunicatorError& error) {
      EXPECT_EQ(error.failed_rank(), 0);
      EXPECT_THAT(error.what(), HasSubstr("rank 0 failed: it has ended its communicator"));
    }
  });
}

// A group of processes; the last is this one's child, and dies between two calls.
TEST(TcpCommunicator, OneThatDiesIsNamedByTheOthers) {
  const ReservedPort port;
  const pid_t dying = ::fork();
  if (dying == 0) {
    const auto device = open_simulated_device({.capacity = 1_MiB});
    const auto communicator = open_tcp_communicator(*device, tcp_group(2, 3, port));
    communicator->barrier();
    ::_exit(0);
  }
  in_threads(2, [&](int rank) {
    const auto device = open_simulated_device({.capacity = 1_MiB});
    const auto communicator = open_tcp_communicator(*device, tcp_group(rank, 3, port));
    TestRank r{*device, *communicator};
    const DeviceMemory pinned(*device, MemoryKind::pinned, 1024);
    communicator->barrier();
    const auto error = r.failure_behind([&] { communicator->all_gather(r.lane.id(), pinned.data(), 16); });
    ASSERT_TRUE(error) << "rank " << rank;
    EXPECT_EQ(error->failed_rank(), 2);
    EXPECT_THAT(error->what(), HasSubstr("ended without a word"));
    r.expect_final(pinned.data());
  });
  ::waitpid(dying, nullptr, 0);
}

TEST(TcpCommunicator, ARankThatMakesNoSenseIsRefused) {
  const auto device = open_simulated_device({.capacity = 1_MiB});
  const auto gather = [](void*, Bytes) {};
  for (const RankOfGroup& rank : {RankOfGroup{1, 1, gather}, RankOfGroup{-1, 2, gather},
                                  RankOfGroup{0, 0, gather}, RankOfGroup{0, -1, gather}, RankOfGroup{}})
    EXPECT_THROW(open_tcp_communicator(*device, rank), InvalidInput) << rank.rank << " of " << rank.size;
}

// Over the one that is there already: nobody listens at the group's port any more.
TEST(TcpCommunicator, AGroupOpensAsManyAsItLikes) {
  run_over_tcp(2, {.capacity = 1_MiB}, [](TestRank& r) {
    const auto device = open_simulated_device({.capacity = 1_MiB});
    const auto second = open_tcp_communicator(*device, rank_in(r.communicator, r.device));
    run_rank(*device, *second, [](TestRank& of_second) {
      const DeviceMemory pinned(of_second.device, MemoryKind::pinned, 2);
      pinned.data()[of_second.rank] = std::byte{7};
      of_second.communicator.all_gather(of_second.lane.id(), pinned.data(), 1);
      of_second.synchronise();
      EXPECT_EQ(pinned.data()[1 - of_second.rank], std::byte{7});
    });
  });
}

}  // namespace
}  // namespace stowage
