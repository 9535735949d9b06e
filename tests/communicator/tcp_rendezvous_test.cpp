#include "src/communicator/tcp_rendezvous.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <functional>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "src/communicator/tcp_socket.h"
#include "stowage/error.h"
#include "tests/communicator/tcp_ranks.h"

namespace stowage::communication {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::chrono::milliseconds soon{200};  // for what never comes

// A connection to rank 0, once it listens.
Descriptor connected(const ReservedPort& port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port.number());
  inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
  for (;;) {
    Descriptor connection = connect_to(address, in_time(tcp_patience));
    if (connection.number() >= 0) return connection;
    std::this_thread::yield();
  }
}

// What all ranks have brought, as this one learns it.
std::vector<int> met(const TcpGroup& group, std::chrono::milliseconds patience = tcp_patience) {
  std::vector<int> all(static_cast<std::size_t>(group.size), -1);
  all[static_cast<std::size_t>(group.rank)] = 100 + group.rank;
  rank_at(group, patience).all_gather(all.data(), sizeof(int));
  return all;
}

// Expects that each of these ranks fails with all of that.
template <class Failure>
void expect_failures(const std::vector<TcpGroup>& groups, const std::vector<std::string>& parts,
                     std::chrono::milliseconds patience = tcp_patience) {
  in_threads(static_cast<int>(groups.size()), [&](int i) {
    try {
      met(groups[static_cast<std::size_t>(i)], patience);
      ADD_FAILURE() << i;
    } catch (const Failure& error) {
      EXPECT_THAT(error.what(), HasSubstr("open_tcp_communicator: "));
      for (const std::string& part : parts) EXPECT_THAT(error.what(), HasSubstr(part));
    }
  });
}

TEST(TcpRendezvous, BringsEachRankWhatAllHave) {
  const ReservedPort port;
  in_threads(5, [&](int rank) {
    EXPECT_EQ(met(tcp_group(rank, 5, port)), (std::vector{100, 101, 102, 103, 104}));
  });
  EXPECT_EQ(met({0, 1, "", 0}), std::vector{100});
}

// They send nothing, half a hello, too much of anything, what only looks like a hello, or go away.
TEST(TcpRendezvous, StrangersHoldUpNobody) {
  const ReservedPort port;
  auto leader = std::async(std::launch::async, [&] { return met(tcp_group(0, 2, port)); });
  const Descriptor silent = connected(port), brief = connected(port), loud = connected(port),
                   other = connected(port);
  const TcpHello hello{.rank = 1, .size = 2, .share_bytes = sizeof(int)};
  send_whole(brief.number(), &hello, sizeof hello / 2);
  const std::string garbage(100'000, 'x');
  send_whole(loud.number(), garbage.data(), garbage.size());
  const TcpHello of_other{.magic = 7, .rank = 1, .size = 3, .share_bytes = sizeof(int)};
  send_whole(other.number(), &of_other, sizeof of_other);
  { const Descriptor gone = connected(port); }
  EXPECT_EQ(met(tcp_group(1, 2, port)), (std::vector{100, 101}));
  EXPECT_EQ(leader.get(), (std::vector{100, 101}));
}

TEST(TcpRendezvous, TwoOfOneRankAreRefusedOnAllRanks) {
  const ReservedPort port;
  expect_failures<InvalidInput>({tcp_group(0, 3, port), tcp_group(1, 3, port), tcp_group(1, 3, port)},
                                {"rank 1 has come twice"});
}

TEST(TcpRendezvous, ARankOfAnotherSizeIsNamedOnAllRanks) {
  const ReservedPort port;
  expect_failures<InvalidInput>({tcp_group(0, 2, port), tcp_group(3, 4, port)},
                                {"rank 3 is one of 4 ranks, rank 0 one of another number"});
}

TEST(TcpRendezvous, ARankOfAnotherBuildIsNamed) {
  for (const TcpHello& hello : {TcpHello{.version = 2, .rank = 1, .size = 2, .share_bytes = sizeof(int)},
                                TcpHello{.rank = 1, .size = 2, .share_bytes = 3}}) {
    const ReservedPort port;
    std::thread rank_one([&] {
      const Descriptor connection = connected(port);
      send_whole(connection.number(), &hello, sizeof hello);
    });
    expect_failures<InvalidInput>({tcp_group(0, 2, port)}, {"rank 1 is of another build than rank 0"});
    rank_one.join();
  }
}

// Rank 2 may come too late on a busy machine, and find nobody: then both take more time.
TEST(TcpRendezvous, ARankThatDoesNotComeIsNamedByAllThatHave) {
  int named_by_rank_two = 0;
  for (auto patience = soon; named_by_rank_two == 0 && patience < tcp_patience; patience *= 2) {
    const ReservedPort port;
    auto leader = std::async(std::launch::async, [&] {
      expect_failures<CommunicatorError>({tcp_group(0, 3, port)}, {"rank 1 has not come to localhost:"},
                                         patience);
    });
    try {
      met(tcp_group(2, 3, port), patience);
    } catch (const CommunicatorError& error) {
      named_by_rank_two = error.failed_rank();
    }
    leader.get();
  }
  EXPECT_EQ(named_by_rank_two, 1);
}

TEST(TcpRendezvous, WithoutRankZeroTheOthersGiveUp) {
  const ReservedPort port;
  expect_failures<CommunicatorError>({tcp_group(1, 2, port)}, {"rank 0 does not answer at localhost:"}, soon);
  expect_failures<CommunicatorError>({{1, 2, "no.such.name.invalid", port.number()}},
                                     {"rank 0 does not answer at no.such.name.invalid:"}, soon);
}

// Rank 1 by hand.
TEST(TcpRendezvous, ARankThatEndsBeforeAllHaveComeIsNamed) {
  const ReservedPort port;
  std::thread rank_one([&] {
    const Descriptor connection = connected(port);
    const TcpHello hello{.rank = 1, .size = 3, .share_bytes = sizeof(int)};
    const int share = 101;
    send_whole(connection.number(), &hello, sizeof hello);
    send_whole(connection.number(), &share, sizeof share);
  });
  expect_failures<CommunicatorError>({tcp_group(0, 3, port)}, {"rank 1 has ended before all had come"});
  rank_one.join();
}

TEST(TcpRendezvous, WhatElseListensThereIsNoRankZero) {
  const Descriptor other = listen_at(0);
  const TcpGroup group{1, 2, "127.0.0.1", port_of(other)};
  auto follower = std::async(std::launch::async, [&] {
    expect_failures<CommunicatorError>({group}, {"gives no answer", "give all ranks another port"});
  });
  const Descriptor guest(::accept(other.number(), nullptr, nullptr));
  const std::string garbage(100'000, 'x');
  send_whole(guest.number(), garbage.data(), garbage.size());
  follower.get();
}

TEST(TcpRendezvous, APortInUseIsAMistake) {
  const Descriptor other = listen_at(0);
  expect_failures<InvalidInput>({{0, 2, "localhost", port_of(other)}},
                                {"rank 0 cannot listen at port " + std::to_string(port_of(other))});
}

TEST(TcpRendezvous, AGroupThatMakesNoSenseIsAMistake) {
  for (const TcpGroup& group : {TcpGroup{0, 0, "a", 1}, TcpGroup{0, 5000, "a", 1}, TcpGroup{-1, 2, "a", 1},
                                TcpGroup{2, 2, "a", 1}, TcpGroup{0, 2, "", 1}, TcpGroup{0, 2, "a", 0}})
    EXPECT_THROW(rank_at(group), InvalidInput);
}

}  // namespace
}  // namespace stowage::communication
