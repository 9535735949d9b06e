// What every channel promises: that of threads in memory, and that of sockets.
#include "stowage/channel.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <future>
#include <mutex>
#include <thread>

#include "src/ranks/message.h"
#include "src/ranks/star.h"
#include "stowage/error.h"
#include "tests/support/draws.h"

namespace stowage::ranks {
namespace {

using namespace std::chrono_literals;
using Channels = std::vector<std::shared_ptr<Channel>>;

std::pair<Descriptor, Descriptor> connection() {
  int ends[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

// Their options, with connections.
std::vector<StarOptions> options_of_stars(int size) {
  std::vector<StarOptions> all(static_cast<std::size_t>(size));
  all[0].connections.resize(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    StarOptions& options = all[static_cast<std::size_t>(rank)];
    options.rank = rank;
    options.size = size;
    if (rank == 0) continue;
    auto [here, there] = connection();
    all[0].connections[static_cast<std::size_t>(rank)] = std::move(here);
    options.connections.push_back(std::move(there));
  }
  return all;
}

Channels stars(int size) {
  Channels channels;
  for (StarOptions& options : options_of_stars(size)) channels.push_back(make_star(std::move(options)));
  return channels;
}

// One thread for each.
void on_each(Channels& channels, const std::function<void(Channel&)>& work) {
  std::vector<std::thread> threads;
  for (auto& channel : channels)
    threads.emplace_back([&] {
      if (channel) work(*channel);
    });
  for (std::thread& thread : threads) thread.join();
}

struct Kind {
  const char* name;
  Channels (*open)(int size);
};
class EveryChannel : public ::testing::TestWithParam<Kind> {
 protected:
  static Channels open(int size) { return GetParam().open(size); }
};
INSTANTIATE_TEST_SUITE_P(Kinds, EveryChannel,
                         ::testing::Values(Kind{"local", local_channels}, Kind{"star", stars}),
                         [](const auto& info) { return info.param.name; });

// What one rank hears on a line.
struct Heard {
  std::promise<RankFailure> failed, died;
  std::promise<int> ended;
  bool has_failed = false, has_died = false, has_ended = false;
  LineWatcher watcher() {
    return {[this](const RankFailure& failure) {
              if (!std::exchange(has_failed, true)) failed.set_value(failure);
            },
            [this](const RankFailure& failure) {
              if (!std::exchange(has_died, true)) died.set_value(failure);
            },
            [this](int rank) {
              if (!std::exchange(has_ended, true)) ended.set_value(rank);
            }};
  }
};

std::string text_of(int rank) {
  return std::string(static_cast<std::size_t>(rank) * 3, 'x') + std::to_string(rank);
}

TEST_P(EveryChannel, GathersTextsAndHandsOutThoseOfOne) {
  for (const int size : {1, 2, 5}) {
    Channels channels = open(size);
    on_each(channels, [&](Channel& channel) {
      for (int round = 0; round < 20; ++round) {
        const std::vector<std::string> texts = channel.gather(text_of(channel.rank() + round));
        ASSERT_EQ(texts.size(), static_cast<std::size_t>(size));
        for (int rank = 0; rank < size; ++rank)
          EXPECT_EQ(texts[static_cast<std::size_t>(rank)], text_of(rank + round));
        const int root = round % size;
        EXPECT_EQ(channel.from(root, text_of(channel.rank())), text_of(root));
      }
      channel.barrier();
    });
  }
}

TEST_P(EveryChannel, CarriesTheLongestTextAndRefusesALongerOne) {
  if (testing::sanitized) GTEST_SKIP() << "a longer text is no other code";
  Channels channels = open(2);
  on_each(channels, [](Channel& channel) {
    const std::string longest(most_call_bytes, 'y');
    EXPECT_TRUE(channel.from(1, channel.rank() == 1 ? longest : "") == longest);
    for (const std::string& text : {std::string(), longest, longest + "in pieces"})
      EXPECT_TRUE(long_text(channel, 1, channel.rank() == 1 ? text : "") == text);
    if (channel.rank() == 1)
      EXPECT_THROW(channel.from(1, longest + "z"), InvalidInput);
    else
      EXPECT_THROW(channel.from(1, {}), CommunicatorError);
  });
}

TEST_P(EveryChannel, ARankThatFailsIsNamedToAll) {
  Channels channels = open(4);
  on_each(channels, [](Channel& channel) {
    channel.barrier();
    if (channel.rank() == 2) channel.fail({2, "planning", "no memory"});
    try {
      for (;;) channel.gather("more");
    } catch (const CommunicatorError& error) {
      EXPECT_EQ(error.failed_rank(), 2);
      EXPECT_NE(std::string(error.what()).find("rank 2 failed in planning: no memory"), std::string::npos)
          << error.what();
    }
  });
}

TEST_P(EveryChannel, ARankThatFailsFailsAllLines) {
  Channels channels = open(3);
  std::vector<Heard> heard(3);
  std::vector<std::unique_ptr<Line>> lines;
  for (std::size_t rank = 0; rank < 3; ++rank)
    lines.push_back(channels[rank]->open_line(heard[rank].watcher()));
  channels[1]->fail({1, {}, "asked to stop"});
  for (Heard& each : heard) EXPECT_EQ(each.failed.get_future().get().reason, "asked to stop");
}

TEST_P(EveryChannel, CallsThatDifferFailOnAll) {
  Channels channels = open(3);
  std::vector<Heard> heard(3);
  std::vector<std::unique_ptr<Line>> lines;
  for (std::size_t rank = 0; rank < 3; ++rank)
    lines.push_back(channels[rank]->open_line(heard[rank].watcher()));
  on_each(channels, [](Channel& channel) {
    EXPECT_THROW(channel.rank() == 1 ? channel.from(1, "x") : channel.gather("x").front(), CommunicatorError);
  });
  for (Heard& each : heard)
    EXPECT_NE(each.failed.get_future().get().reason.find("another rank"), std::string::npos);
}

TEST_P(EveryChannel, WhoNeedsARankThatHasLeftIsTold) {
  Channels channels = open(3);
  on_each(channels, [&](Channel& channel) {
    channel.barrier();
    if (channel.rank() == 1) return channels[1].reset();
    try {
      channel.barrier();
      ADD_FAILURE() << channel.rank();
    } catch (const CommunicatorError& error) {
      EXPECT_EQ(error.failed_rank(), 1);
      EXPECT_EQ(channel.failure()->kind, RankFailure::Kind::ended);
    }
  });
}

TEST_P(EveryChannel, LinesHearTheirOwnWordsAlone) {
  Channels channels = open(3);
  std::vector<Heard> first(3), second(3);
  std::vector<std::unique_ptr<Line>> first_lines, second_lines;
  for (std::size_t rank = 0; rank < 3; ++rank)
    first_lines.push_back(channels[rank]->open_line(first[rank].watcher()));
  second_lines.push_back(channels[0]->open_line(second[0].watcher()));
  second_lines.push_back(channels[1]->open_line(second[1].watcher()));
  second_lines[1]->tell({1, "exchange", "on the second"});
  EXPECT_EQ(second[0].failed.get_future().get().reason, "on the second");
  // A word that came before the line was open is kept.
  second_lines.push_back(channels[2]->open_line(second[2].watcher()));
  EXPECT_EQ(second[2].failed.get_future().get().call, "exchange");
  first_lines[2].reset();
  EXPECT_EQ(first[0].ended.get_future().get(), 2);
  EXPECT_EQ(first[1].ended.get_future().get(), 2);
  for (Heard& heard : first) EXPECT_FALSE(heard.has_failed);
  EXPECT_FALSE(channels[0]->failure());
}

// Whose other end the test holds, as rank 1 of two or three.
struct Leader {
  explicit Leader(StarOptions options = {}) {
    auto [here, there] = connection();
    options.rank = 0;
    options.size = 2;
    options.connections.resize(2);
    options.connections[1] = std::move(here);
    other = std::move(there);
    channel = make_star(std::move(options));
  }
  void say(std::string_view bytes) const { send_whole(other.number(), bytes, Clock::now() + 1s); }
  void expect_failure(const std::string& reason) const {
    try {
      for (int round = 0; round < 3; ++round) channel->barrier();
      ADD_FAILURE();
    } catch (const CommunicatorError& error) {
      EXPECT_EQ(error.failed_rank(), 1);
      EXPECT_NE(std::string(error.what()).find(reason), std::string::npos) << error.what();
    }
  }
  Descriptor other;
  std::unique_ptr<Channel> channel;
};

TEST(Star, AProcessThatIsGoneIsNamed) {
  Leader leader;
  Heard heard;
  const auto line = leader.channel->open_line(heard.watcher());
  leader.other = {};
  EXPECT_EQ(heard.died.get_future().get().rank, 1);
  leader.expect_failure("its process ended without a word");
  EXPECT_EQ(leader.channel->failure()->kind, RankFailure::Kind::died);
  Heard later;
  const auto second = leader.channel->open_line(later.watcher());
  EXPECT_EQ(later.died.get_future().get().rank, 1);
}

// Rank 0 leaves while rank 2, whose part is the test's, takes no bytes yet. Rank 1 goes at once, and nobody
// is told that it is dead.
TEST(Star, WhoGoesBehindOneThatLeavesIsNotDead) {
  std::vector<StarOptions> options = options_of_stars(3);
  const Descriptor second = std::move(options[2].connections[0]);
  const std::string noise(1 << 16, 'x');
  while (send(options[0].connections[2].number(), noise.data(), noise.size(), MSG_DONTWAIT) > 0) continue;
  std::unique_ptr<Channel> leader = make_star(std::move(options[0])),
                           first = make_star(std::move(options[1]));
  Heard heard;
  std::unique_ptr<Line> line = first->open_line(heard.watcher());
  auto leaving = std::async(std::launch::async, [&] { leader.reset(); });
  EXPECT_EQ(heard.ended.get_future().get(), 0);
  line.reset();
  first.reset();
  std::this_thread::sleep_for(200ms);
  std::string read, piece(1 << 16, '\0');
  for (pollfd entry{second.number(), POLLIN, 0}; poll_until({&entry, 1}, Clock::now() + 5s);) {
    const ssize_t got = recv(second.number(), piece.data(), piece.size(), MSG_DONTWAIT);
    if (got <= 0) break;
    read.append(piece, 0, static_cast<std::size_t>(got));
  }
  leaving.get();
  EXPECT_NE(read.find(encode({MessageKind::left, 0, 0, {}})), std::string::npos);
  EXPECT_EQ(read.find("its process ended"), std::string::npos);
}

// Rank 2, whose part is the test's, leaves and dies before it is gone: while rank 0 and rank 1 still leave,
// as they do until MPI has ended.
TEST(Star, WhoDiesWhileOthersLeaveIsNamed) {
  std::vector<StarOptions> options = options_of_stars(3);
  Descriptor second = std::move(options[2].connections[0]);
  std::promise<RankFailure> seen[2];
  for (const std::size_t rank : {0, 1})
    options[rank].leaving = [&seen, rank](Channel& channel) {
      while (!channel.failure()) std::this_thread::sleep_for(1ms);
      seen[rank].set_value(*channel.failure());
    };
  std::unique_ptr<Channel> leader = make_star(std::move(options[0])),
                           first = make_star(std::move(options[1]));
  auto leader_leaves = std::async(std::launch::async, [&] { leader.reset(); });
  auto first_leaves = std::async(std::launch::async, [&] { first.reset(); });
  EXPECT_TRUE(send_whole(second.number(), encode({MessageKind::left, 2, 0, {}}), Clock::now() + 5s));
  second = {};
  for (auto& each : seen) {
    const RankFailure failure = each.get_future().get();
    EXPECT_EQ(failure.rank, 2);
    EXPECT_EQ(failure.kind, RankFailure::Kind::died);
  }
}

TEST(Star, RanksOutOfTheirMindsAreDead) {
  const std::string part = encode({MessageKind::part, 0, 1, "x"});
  const std::vector<std::string> wrong{std::string(30, 'G'),
                                       encode({MessageKind::whole, 0, 1, {}}),
                                       encode({MessageKind::standing, 0, 0, "\1\1"}),
                                       encode({MessageKind::begun, 0, 0, {}}),
                                       encode({MessageKind::part, 0, 2, {}}),
                                       part + part,
                                       encode({MessageKind::part, 7, 1, {}}),
                                       encode({MessageKind::failed, 2, 0, pack({})}),
                                       encode({MessageKind::failed, 1, 0, "no texts"}),
                                       encode({MessageKind::left, 0, 0, {}}),
                                       encode({MessageKind::ended, 0, 1, {}})};
  for (std::size_t i = 0; i < wrong.size(); ++i) {
    SCOPED_TRACE(i);
    StarOptions options;
    options.standing_time = 20s;  // one that is believed
    const Leader leader(std::move(options));
    leader.say(wrong[i]);
    leader.expect_failure("it sends what no rank sends");
  }
}

// What a channel's thread has told of waiting.
struct Told {
  void keep(const Waiting& waiting) {
    const std::lock_guard lock(mutex);
    all.push_back(waiting);
  }
  Waiting last() {
    const std::lock_guard lock(mutex);
    return all.empty() ? Waiting{} : all.back();
  }
  std::mutex mutex;
  std::vector<Waiting> all;
};

TEST(Star, WhoIsSilentStandsStillAndIsDeadInTheEnd) {
  Told told;
  StarOptions options;
  options.alive_every = 10ms;
  options.silence = 100ms;
  options.standing_time = 400ms;
  options.waits = [&](const Waiting& waiting) { told.keep(waiting); };
  const Leader leader(std::move(options));
  leader.expect_failure("its process has stood still for");
  EXPECT_EQ(told.last().missing, std::vector<int>{1});
  EXPECT_EQ(told.last().standing, std::vector<int>{1});
  EXPECT_GT(told.last().time, 100ms);
}

// As one does whose communicator waits for the other.
TEST(Star, WhoStandsStillIsToldWithoutACallAndIsDeadWhereTheWaitingIsEnded) {
  Told told;
  StarOptions options;
  options.alive_every = 10ms;
  options.silence = 100ms;
  options.waits = [&](const Waiting& waiting) {
    told.keep(waiting);
    throw InvalidInput("the user has no patience");
  };
  const Leader leader(std::move(options));
  Heard heard;
  const auto line = leader.channel->open_line(heard.watcher());
  const RankFailure death = heard.died.get_future().get();
  EXPECT_EQ(death.rank, 1);
  EXPECT_EQ(death.reason, "the user has no patience");
  EXPECT_EQ(told.last().time, 0s);
  EXPECT_TRUE(told.last().missing.empty());
  EXPECT_EQ(told.last().standing, std::vector<int>{1});
}

TEST(Star, WhoWorksIsWaitedFor) {
  Told told;
  std::vector<StarOptions> options = options_of_stars(3);
  for (StarOptions& each : options) {
    each.alive_every = 10ms;
    each.silence = 200ms;
    each.standing_time = 400ms;
  }
  options[0].waits = [&](const Waiting& waiting) {
    EXPECT_TRUE(waiting.standing.empty());
    told.keep(waiting);
  };
  {
    Channels channels;
    for (StarOptions& each : options) channels.push_back(make_star(std::move(each)));
    on_each(channels, [](Channel& channel) {
      if (channel.rank() == 2) std::this_thread::sleep_for(1s);
      channel.barrier();
    });
  }
  EXPECT_TRUE(std::any_of(told.all.begin(), told.all.end(),
                          [](const Waiting& waiting) { return waiting.missing == std::vector<int>{2}; }));
}

// Rank 2's part is the test's, and says nothing. Rank 1 asks to stop, rank 0 does not.
TEST(Star, WhoStandsStillIsDeadWhereAnyRankHasNoPatience) {
  std::vector<StarOptions> options = options_of_stars(3);
  for (StarOptions& each : options) {
    each.alive_every = 10ms;
    each.silence = 100ms;
  }
  const Descriptor silent = std::move(options[2].connections[0]);
  options.pop_back();
  options[1].waits = [](const Waiting& waiting) {
    if (waiting.standing == std::vector<int>{2}) throw InvalidInput("the user has no patience");
  };
  Channels channels;
  for (StarOptions& each : options) channels.push_back(make_star(std::move(each)));
  on_each(channels, [](Channel& channel) {
    EXPECT_THROW(channel.barrier(), CommunicatorError);
    EXPECT_EQ(channel.failure()->rank, 2);
    EXPECT_EQ(channel.failure()->kind, RankFailure::Kind::died);
    EXPECT_EQ(channel.failure()->reason, "the user has no patience");
  });
}

TEST_P(EveryChannel, ARootThatIsNoRankFailsOnAll) {
  Channels channels = open(2);
  on_each(channels, [](Channel& channel) {
    if (channel.rank() == 1)
      EXPECT_THROW(channel.from(2, {}), InvalidInput);
    else
      EXPECT_THROW(channel.barrier(), CommunicatorError);
  });
}

TEST(Star, WhatTheWaitingThrowsEndsTheCallOnAll) {
  std::vector<StarOptions> options = options_of_stars(2);
  options[0].alive_every = 10ms;
  options[0].waits = [](const Waiting&) { throw InvalidInput("asked to stop"); };
  Channels channels;
  for (StarOptions& each : options) channels.push_back(make_star(std::move(each)));
  EXPECT_THROW(channels[0]->barrier(), CommunicatorError);
  EXPECT_THROW(channels[1]->barrier(), CommunicatorError);
  EXPECT_EQ(channels[1]->failure()->rank, 0);
  EXPECT_EQ(channels[1]->failure()->reason, "asked to stop");
}

}  // namespace
}  // namespace stowage::ranks
