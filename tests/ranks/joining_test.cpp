// Ranks that come together, and who shall not be among them.
#include "src/ranks/meeting.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <future>
#include <optional>
#include <thread>

#include "src/ranks/greeting.h"
#include "src/ranks/message.h"
#include "stowage/error.h"
#include "tests/support/reserved_port.h"

namespace stowage::ranks {
namespace {

using namespace std::chrono_literals;

constexpr const char* secret = "sixteen bytes or more";

struct Kind {
  const char* name;
  bool is_local;
  const char* secret;
};

MeetingOptions options_of(int rank, int size, const std::string& of_secret = {}) {
  MeetingOptions options;
  options.rank = rank;
  options.size = size;
  options.build = "a build";
  options.secret = of_secret;
  options.patience = 20s;
  return options;
}

class EveryMeeting : public ::testing::TestWithParam<Kind> {
 protected:
  MeetingOptions options(int rank, int size) const { return options_of(rank, size, GetParam().secret); }
  Descriptor stranger() const {
    Names names;
    const Address address = GetParam().is_local ? local_address(getuid(), point_.port)
                                                : addresses_of("127.0.0.1", point_.port, names).front();
    return connect_to(address, Clock::now() + 5s);
  }
  void others_join(int size) {
    for (int rank = 1; rank < size; ++rank)
      joining_.push_back(
          std::async(std::launch::async, [this, rank, size] { return join(point_, options(rank, size)); }));
  }
  // All that have joined hold a connection with rank 0.
  void expect_joined(const std::vector<Descriptor>& ranks) {
    for (std::size_t rank = 1; rank < ranks.size(); ++rank) {
      const Descriptor there = joining_[rank - 1].get();
      ASSERT_TRUE(send_whole(ranks[rank].number(), std::to_string(rank), Clock::now() + 1s));
      EXPECT_EQ(receive_whole(there.number(), 1, Clock::now() + 5s), std::to_string(rank));
    }
  }

  ReservedPort port_;
  MeetingPoint point_{GetParam().is_local, {"127.0.0.1"}, port_.number()};
  std::vector<std::future<Descriptor>> joining_;
};
INSTANTIATE_TEST_SUITE_P(Kinds, EveryMeeting,
                         ::testing::Values(Kind{"local", true, ""}, Kind{"open", false, ""},
                                           Kind{"secret", false, secret}),
                         [](const auto& info) { return info.param.name; });

TEST_P(EveryMeeting, AllComeTogether) {
  others_join(5);  // who comes before rank 0 listens tries again
  std::this_thread::sleep_for(100ms);
  std::vector<std::string> lines;
  MeetingOptions own = options(0, 5);
  own.say = [&](const std::string& line) { lines.push_back(line); };
  expect_joined(Reception(point_, own).admit());
  for (int rank = 1; rank < 5; ++rank)
    EXPECT_EQ(std::count_if(lines.begin(), lines.end(),
                            [&](const std::string& line) {
                              return line.starts_with("rank " + std::to_string(rank) + " came from ");
                            }),
              1);
}

TEST_P(EveryMeeting, StrangersHoldUpNobodyAndLeaveNothing) {
  const auto files = [] {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
  };
  const auto before = files();
  {
    Reception reception(point_, options(0, 3));
    auto admitting = std::async(std::launch::async, [&] { return reception.admit(); });
    std::vector<Descriptor> strangers;
    for (int i = 0; i < 300; ++i) {
      strangers.push_back(stranger());
      if (i % 3 == 1) send_whole(strangers.back().number(), std::string(200, 'G'), Clock::now() + 1s);
      if (i % 3 == 2) send_whole(strangers.back().number(), encode(Hello{}).substr(0, 30), Clock::now() + 1s);
    }
    // A whole greeting, and silence.
    strangers.push_back(stranger());
    send_whole(strangers.back().number(), encode(Hello{1, 3, "a build", !options(0, 3).secret.empty(), {}}),
               Clock::now() + 1s);
    others_join(3);
    expect_joined(admitting.get());
  }
  joining_.clear();
  EXPECT_EQ(files(), before);
}

// What rank 0 and rank 1 end with, where rank 2 joins with these options.
std::pair<std::string, std::string> ends_of(const MeetingPoint& point, const MeetingOptions& leader,
                                            const MeetingOptions& first, const MeetingOptions& second) {
  const auto joins = [&](const MeetingOptions& options) {
    return std::async(std::launch::async, [&]() -> std::string {
      try {
        join(point, options);
      } catch (const InvalidInput& error) {
        return error.what();
      } catch (const CommunicatorError& error) {
        return "lost: " + std::string(error.what());
      }
      return "joined";
    });
  };
  Reception reception(point, leader);
  auto one = joins(first);
  std::string end = "met";
  auto admitting = std::async(std::launch::async, [&] {
    try {
      reception.admit();
    } catch (const InvalidInput& error) {
      end = error.what();
    } catch (const CommunicatorError& error) {
      end = "lost: " + std::string(error.what());
    }
  });
  std::this_thread::sleep_for(300ms);
  auto two = joins(second);
  admitting.get();
  return {end, one.get() + " | " + two.get()};
}

TEST_P(EveryMeeting, RanksThatMakeNoGroupAreToldSo) {
  const auto [twice, of_twice] = ends_of(point_, options(0, 3), options(1, 3), options(1, 3));
  EXPECT_NE(twice.find("rank 1 has come twice"), std::string::npos) << twice;
  EXPECT_NE(of_twice.find("rank 1 has come twice"), of_twice.rfind("rank 1 has come twice")) << of_twice;
  const auto [size, of_size] = ends_of(point_, options(0, 3), options(1, 3), options(2, 4));
  EXPECT_NE(size.find("rank 2 is one of 4 ranks, rank 0 one of 3"), std::string::npos) << size;
  MeetingOptions other = options(2, 3);
  other.build = "another";
  const auto [build, of_build] = ends_of(point_, options(0, 3), options(1, 3), other);
  EXPECT_NE(build.find("rank 2 is of another build"), std::string::npos) << build;
}

TEST_P(EveryMeeting, WhoHasNotComeInTimeIsNamed) {
  MeetingOptions own = options(0, 3);
  own.patience = 500ms;
  others_join(2);
  try {
    Reception(point_, own).admit();
    ADD_FAILURE();
  } catch (const CommunicatorError& error) {
    EXPECT_EQ(error.failed_rank(), 1) << error.what();  // of a group of two: refused, so nobody came
  } catch (const InvalidInput& error) {
    EXPECT_NE(std::string(error.what()).find("one of 2 ranks"), std::string::npos);
  }
  EXPECT_ANY_THROW(joining_.front().get());
}

TEST_P(EveryMeeting, WhoHasComeAndIsGoneIsNamed) {
  Reception reception(point_, options(0, 3));
  auto admitting = std::async(std::launch::async, [&] { return reception.admit(); });
  {
    const Descriptor gone = stranger();
    const Hello hello{2, 3, "a build", !options(0, 3).secret.empty(), random_nonce()};
    send_whole(gone.number(), encode(hello), Clock::now() + 1s);
    const auto reply = reply_of(receive_whole(gone.number(), reply_bytes, Clock::now() + 5s).value());
    const Proof proof = proof_of(options(0, 3).secret, Prover::other, hello, reply->nonce);
    send_whole(gone.number(), {reinterpret_cast<const char*>(proof.data()), proof.size()}, Clock::now() + 1s);
    receive_whole(gone.number(), verdict_bytes, Clock::now() + 5s);
  }
  try {
    admitting.get();
    ADD_FAILURE();
  } catch (const CommunicatorError& error) {
    EXPECT_EQ(error.failed_rank(), 2);
  }
}

TEST_P(EveryMeeting, AReplayedOrWrongProofIsSentAway) {
  if (options(0, 2).secret.empty()) GTEST_SKIP() << "there is no secret here";
  Reception reception(point_, options(0, 2));
  std::vector<std::string> lines;
  auto admitting = std::async(std::launch::async, [&] { return reception.admit(); });
  const auto asks = [&](const Hello& hello, const std::function<std::string(const Reply&)>& answer) {
    const Descriptor connection = stranger();
    send_whole(connection.number(), encode(hello), Clock::now() + 1s);
    const auto reply = reply_of(receive_whole(connection.number(), reply_bytes, Clock::now() + 5s).value());
    EXPECT_EQ(reply->verdict, Verdict::welcome);
    send_whole(connection.number(), answer(*reply), Clock::now() + 1s);
    return verdict_of(receive_whole(connection.number(), verdict_bytes, Clock::now() + 5s).value())->verdict;
  };
  const auto bytes = [](const Proof& of) { return std::string(of.begin(), of.end()); };
  const Hello hello{1, 2, "a build", true, random_nonce()};
  EXPECT_EQ(asks(hello, [](const Reply&) { return std::string(proof_bytes, '\0'); }), Verdict::wrong_secret);
  EXPECT_EQ(asks(hello, [&](const Reply& reply) { return bytes(reply.proof); }), Verdict::wrong_secret);
  // What a true rank would have answered before.
  const std::string heard = bytes(proof_of(secret, Prover::other, hello, random_nonce()));
  EXPECT_EQ(asks(hello, [&](const Reply&) { return heard; }), Verdict::wrong_secret);
  others_join(2);
  expect_joined(admitting.get());
}

TEST(Meeting, SecretsThatDifferAreNamed) {
  ReservedPort port;
  const MeetingPoint point{false, {"127.0.0.1"}, port.number()};
  const auto refusal = [&](const std::string& of_leader, const std::string& of_other) {
    MeetingOptions leader = options_of(0, 2, of_leader);
    leader.patience = 1s;
    const auto admitting = std::async(std::launch::async, [&] {
      EXPECT_THROW(Reception(point, leader).admit(),
                   CommunicatorError);  // the job waits for one that belongs
    });
    try {
      join(point, options_of(1, 2, of_other));
    } catch (const InvalidInput& error) {
      return std::string(error.what());
    }
    return std::string("joined");
  };
  EXPECT_NE(refusal(secret, "").find("rank 0 has a secret"), std::string::npos);
  EXPECT_NE(refusal("", secret).find("rank 0 has no secret"), std::string::npos);
  EXPECT_NE(refusal(secret, "another secret of theirs").find("does not know the secret"), std::string::npos);
}

constexpr uid_t nobody = 65534;

// Exit code of `work` in a process of another user.
int as_nobody(const std::function<int()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    const bool changed = setgid(nobody) == 0 && setuid(nobody) == 0;
    _exit(changed ? work() : 99);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 98;
}

TEST(Meeting, AProcessOfAnotherUserIsSentAwayAndNamed) {
  if (getuid() != 0) GTEST_SKIP() << "only root starts a process of another user";
  ReservedPort port;
  const MeetingPoint point{true, {}, port.number()};
  std::vector<std::string> lines;
  MeetingOptions own = options_of(0, 2);
  own.say = [&](const std::string& line) { lines.push_back(line); };
  Reception reception(point, own);
  // It knows the name, and greets as rank 1 would.
  std::future<std::vector<Descriptor>> admitting;
  const Address address = local_address(getuid(), point.port);
  std::promise<int> ended;
  std::thread stranger([&] {
    ended.set_value(as_nobody([&] {
      const Descriptor connection = connect_to(address, Clock::now() + 5s);
      send_whole(connection.number(), encode(Hello{1, 2, "a build", false, {}}), Clock::now() + 1s);
      const auto bytes = receive_whole(connection.number(), reply_bytes, Clock::now() + 5s);
      const auto reply = bytes ? reply_of(*bytes) : std::nullopt;
      return reply && reply->verdict == Verdict::other_user && reply->detail == nobody ? 0 : 1;
    }));
  });
  admitting = std::async(std::launch::async, [&] { return reception.admit(); });
  EXPECT_EQ(ended.get_future().get(), 0);
  stranger.join();
  const Descriptor rank_1 = join(point, options_of(1, 2));
  EXPECT_TRUE(admitting.get()[1]);
  EXPECT_NE(std::find(lines.begin(), lines.end(), "a process of user 65534 was sent away"), lines.end());
}

TEST(Meeting, AListenerOfAnotherUserIsNotTrusted) {
  if (getuid() != 0) GTEST_SKIP() << "only root starts a process of another user";
  ReservedPort port;
  const MeetingPoint point{true, {}, port.number()};
  const Address address = local_address(getuid(), point.port);
  std::thread listener([&] {
    as_nobody([&] {
      const Descriptor listening = listen_at(address);
      std::this_thread::sleep_for(2s);
      return 0;
    });
  });
  try {
    join(point, options_of(1, 2));
    ADD_FAILURE();
  } catch (const InvalidInput& error) {
    EXPECT_NE(std::string(error.what()).find("a process of user 65534 listens"), std::string::npos)
        << error.what();
  }
  listener.join();
}

TEST(Meeting, ANameOfNobodyIsKnownAtOnce) {
  const MeetingPoint point{false, {"no-such-machine.invalid"}, 29500};
  const auto refusal = [](const auto& work) {
    try {
      work();
    } catch (const InvalidInput& error) {
      return std::string(error.what());
    }
    return std::string("came together");
  };
  const std::string expected = "no-such-machine.invalid is the name of no machine";
  EXPECT_EQ(refusal([&] { Reception(point, options_of(0, 2)); }).substr(0, expected.size()), expected);
  EXPECT_EQ(refusal([&] { join(point, options_of(1, 2)); }).substr(0, expected.size()), expected);
}

TEST(Meeting, APortInUseIsNamed) {
  ReservedPort port;
  const MeetingPoint point{false, {"127.0.0.1"}, port.number()};
  const Reception first(point, options_of(0, 2));
  EXPECT_THROW(Reception(point, options_of(0, 2)), InvalidInput);
}

TEST(Meeting, WhatTheLookThrowsEndsIt) {
  ReservedPort port;
  const MeetingPoint point{true, {}, port.number()};
  MeetingOptions options = options_of(0, 2);
  options.look = [] { throw InvalidInput("asked to stop"); };
  EXPECT_THROW(Reception(point, options).admit(), InvalidInput);
  options.rank = 1;
  EXPECT_THROW(join(point, options), InvalidInput);
}

}  // namespace
}  // namespace stowage::ranks
