#include "src/communicator/side_channel.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <future>
#include <memory>

namespace stowage::communication {
namespace {

// What one rank hears first of each kind.
struct Heard {
  std::promise<RankFailure> failed;
  std::promise<int> ended;
  std::promise<int> died;
  bool has_failed = false, has_ended = false;
  SideChannel::Watcher watcher() {
    return {[this](const RankFailure& failure) {
              if (!std::exchange(has_failed, true)) failed.set_value(failure);
            },
            [this](int rank) { died.set_value(rank); },
            [this](int rank) {
              if (!std::exchange(has_ended, true)) ended.set_value(rank);
            }};
  }
};

struct Ranks {
  explicit Ranks(int size) : heard(static_cast<std::size_t>(size)) {
    for (int rank = 0; rank < size; ++rank) channels.push_back(std::make_unique<SideChannel>("open"));
    std::vector<SideChannel::Address> addresses;
    for (const auto& channel : channels) addresses.push_back(channel->address());
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank)
      threads.emplace_back([&, rank] {
        const auto i = static_cast<std::size_t>(rank);
        channels[i]->connect(rank, addresses, heard[i].watcher());
      });
    for (std::thread& thread : threads) thread.join();
  }
  std::vector<Heard> heard;
  std::vector<std::unique_ptr<SideChannel>> channels;
};

TEST(SideChannel, WhatOneTellsAllOthersHear) {
  Ranks ranks(4);
  const std::string reason(3000, 'x');
  ranks.channels[2]->tell({1, "all_gather", reason});
  for (const std::size_t other : {0, 1, 3}) {
    const RankFailure failure = ranks.heard[other].failed.get_future().get();
    EXPECT_EQ(failure.rank, 1);
    EXPECT_EQ(failure.call, "all_gather");
    EXPECT_EQ(failure.reason, reason);
  }
}

TEST(SideChannel, OneThatEndsIsNoFailure) {
  Ranks ranks(2);
  ranks.channels[0].reset();
  EXPECT_EQ(ranks.heard[1].ended.get_future().get(), 0);
  ranks.channels[1].reset();
  EXPECT_FALSE(ranks.heard[1].has_failed);
}

TEST(SideChannel, OneWhoseProcessDiesIsNamed) {
  auto mine = std::make_unique<SideChannel>("open");
  const SideChannel::Address here = mine->address();
  // The child connects as rank 1, by hand: its own channel would have threads.
  const pid_t child = fork();
  if (child == 0) {
    SideChannel theirs("open");
    theirs.connect(1, std::vector{here, theirs.address()}, {});
    _exit(0);
  }
  Heard heard;
  mine->connect(0, std::vector{here, here}, heard.watcher());
  EXPECT_EQ(heard.died.get_future().get(), 1);
  waitpid(child, nullptr, 0);
}

TEST(SideChannel, ARankThatIsNotThereIsAnError) {
  SideChannel channel("open");
  SideChannel::Address nowhere = channel.address();
  {
    const SideChannel gone("open");
    nowhere.port = gone.address().port;
  }
  EXPECT_THROW(channel.connect(1, std::vector{nowhere, channel.address()}, {}), CommunicatorError);
}

}  // namespace
}  // namespace stowage::communication
