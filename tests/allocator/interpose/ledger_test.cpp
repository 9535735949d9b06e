#include "allocator/interpose/ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sstream>
#include <thread>
#include <vector>

#include "tests/support/temporary_folder.h"

namespace stowage::interpose {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr Block small{.kind = Kind::device, .device = 0, .context = 5, .stream = 0, .bytes = 100};

Block with(Block block, Kind kind) {
  block.kind = kind;
  return block;
}

TEST(Ledger, CountsWhatIsGrantedUntilItIsFreed) {
  Ledger ledger({});
  ASSERT_TRUE(ledger.admit(small));
  ledger.granted(0x1000, small);
  EXPECT_EQ(ledger.live(0), 100U);
  EXPECT_EQ(ledger.live(1), 0U);
  const auto taken = ledger.take(0x1000);
  ASSERT_TRUE(taken);
  EXPECT_EQ(taken->bytes, 100U);
  EXPECT_EQ(ledger.live(0), 100U) << "until the driver has freed it";
  EXPECT_FALSE(ledger.take(0x1000)) << "once";
  ledger.freed(0x1000, *taken, 0);
  EXPECT_EQ(ledger.live(0), 0U);
}

TEST(Ledger, KeepsWhatTheDriverDoesNotFree) {
  Ledger ledger({});
  ASSERT_TRUE(ledger.admit(small));
  ledger.granted(0x1000, small);
  ledger.not_freed(0x1000, *ledger.take(0x1000), 1);
  EXPECT_EQ(ledger.live(0), 100U);
  EXPECT_TRUE(ledger.take(0x1000));
}

// The events of a record and their addresses, in order.
std::vector<std::string> events_of(const std::string& path) {
  std::vector<std::string> events;
  std::istringstream text(contents_of(path));
  for (std::string line; std::getline(text, line);) {
    std::vector<std::string> fields(1);
    for (const char c : line) c == ',' ? void(fields.emplace_back()) : fields.back().push_back(c);
    if (fields.size() > 7 && fields[7] != "0x0") events.push_back(fields[3] + ' ' + fields[7]);
  }
  return events;
}

TEST(Ledger, WritesAFreeBeforeTheAddressIsGrantedAgain) {
  const TemporaryFolder folder;
  const std::string path = folder.make("record", "");
  Ledger ledger({.record = path});
  for (int thread = 0; thread < 2; ++thread) ASSERT_TRUE(ledger.admit(small));
  ledger.granted(0x1000, small);
  const auto first = ledger.take(0x1000);
  ledger.granted(0x1000, small);  // to another thread, once the driver has freed it for the first
  const auto second = ledger.take(0x1000);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(ledger.live(0), 100U);
  ledger.freed(0x1000, *first, 0);
  EXPECT_EQ(ledger.live(0), 100U) << "the second is not freed yet";
  ledger.freed(0x1000, *second, 0);
  EXPECT_EQ(ledger.live(0), 0U);
  ledger.end();
  EXPECT_THAT(events_of(path),
              ::testing::ElementsAre("alloc 0x1000", "free 0x1000", "alloc 0x1000", "free 0x1000"));
}

TEST(Ledger, WritesTheEndOfAHandleBeforeItIsGivenOutAgain) {
  const TemporaryFolder folder;
  const std::string path = folder.make("record", "");
  Ledger ledger({.record = path});
  const Block block = with(small, Kind::physical);
  for (int thread = 0; thread < 2; ++thread) ASSERT_TRUE(ledger.admit(block));
  ledger.created(7, block);
  ledger.mapped(0x10000, 100, 7);
  ledger.released(7);
  ledger.created(7, block);  // to another thread, once the driver has unmapped it for the first
  ledger.unmapped(0x10000, 100);
  EXPECT_EQ(ledger.live(0), 100U);
  ledger.released(7);
  EXPECT_EQ(ledger.live(0), 0U);
  ledger.end();
  EXPECT_THAT(events_of(path), ::testing::ElementsAre("alloc 0x7", "free 0x7", "alloc 0x7", "free 0x7"));
}

TEST(Ledger, RefusesWhatTheLimitHasNoRoomFor) {
  Ledger ledger({.limit = 250});
  for (std::uint64_t address : {0x1000U, 0x2000U}) {
    ASSERT_TRUE(ledger.admit(small));
    ledger.granted(address, small);
  }
  EXPECT_FALSE(ledger.admit(small));
  EXPECT_EQ(ledger.live(0), 200U) << "what is refused takes nothing";
  Block other = small;
  other.device = 1;
  EXPECT_TRUE(ledger.admit(other)) << "each card has its own";
  Block huge = small;
  huge.bytes = std::numeric_limits<Bytes>::max();
  EXPECT_FALSE(ledger.admit(huge)) << "no sum overflows";
  EXPECT_TRUE(ledger.admit(with(huge, Kind::managed))) << "may be on the host";
}

TEST(Ledger, GivesBackWhatTheDriverRefused) {
  Ledger ledger({.limit = 100});
  ASSERT_TRUE(ledger.admit(small));
  ledger.failed(small, 2);
  EXPECT_EQ(ledger.live(0), 0U);
  EXPECT_TRUE(ledger.admit(small));
}

TEST(Ledger, ShowsACardOfTheLimitsSize) {
  Ledger ledger({.limit = 1000});
  EXPECT_EQ(ledger.total_shown(5000), 1000U);
  EXPECT_EQ(ledger.total_shown(500), 500U) << "never more than there is";
  ASSERT_TRUE(ledger.admit(small));
  EXPECT_EQ(ledger.free_shown(0, 4000), 900U);
  EXPECT_EQ(ledger.free_shown(0, 50), 50U) << "others use the card, too";
}

TEST(Ledger, CountsPhysicalMemoryUntilNothingHoldsIt) {
  Ledger ledger({});
  const Block block = with(small, Kind::physical);
  ASSERT_TRUE(ledger.admit(block));
  ledger.created(7, block);
  ledger.mapped(0x10000, 100, 7);
  ledger.mapped(0x20000, 100, 7);
  ledger.retained(7);
  ledger.released(7);
  ledger.unmapped(0x10000, 100);
  ledger.unmapped(0x20000, 100);
  EXPECT_EQ(ledger.live(0), 100U) << "it was retained";
  ledger.released(7);
  EXPECT_EQ(ledger.live(0), 0U);
  ledger.released(7);
  ledger.unmapped(0x10000, 100);
  EXPECT_EQ(ledger.live(0), 0U) << "what is unknown counts nothing";
}

TEST(Ledger, UnmapsSeveralMappingsAtOnce) {
  Ledger ledger({});
  const Block block = with(small, Kind::physical);
  for (std::uint64_t handle : {1U, 2U, 3U}) {
    ASSERT_TRUE(ledger.admit(block));
    ledger.created(handle, block);
    ledger.mapped(0x1000 * handle, 0x1000, handle);
    ledger.released(handle);
  }
  ledger.unmapped(0x1000, 0x2000);
  EXPECT_EQ(ledger.live(0), 100U);
}

TEST(Ledger, LosesWhatAContextTakesAlong) {
  Ledger ledger({});
  Block elsewhere = small;
  elsewhere.context = 6;
  Block pooled = with(small, Kind::async);
  pooled.context = 0;
  std::uint64_t address = 0x1000;
  for (const Block& block : {small, elsewhere, pooled}) {
    ASSERT_TRUE(ledger.admit(block));
    ledger.granted(address++, block);
  }
  ledger.context_gone(5);
  EXPECT_EQ(ledger.live(0), 200U);
  ledger.context_gone(0);
  EXPECT_EQ(ledger.live(0), 200U) << "a pool's memory is of no context";
  ledger.device_reset(0, 6);
  EXPECT_EQ(ledger.live(0), 0U);
}

TEST(Ledger, TakesAnAddressThatComesAgainForFreed) {
  Ledger ledger({});
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(ledger.admit(small));
    ledger.granted(0x1000, small);
  }
  EXPECT_EQ(ledger.live(0), 100U);
}

TEST(Ledger, CountsWhatIsOnTheHostApart) {
  const TemporaryFolder folder;
  const std::string path = folder.make("record", "");
  Ledger ledger({.limit = 100, .record = path});
  ASSERT_TRUE(ledger.admit(small));
  ledger.granted(0x1000, small);
  EXPECT_FALSE(ledger.admit(small));
  Block block = small;
  block.spilled = true;
  ledger.granted(0x2000, block);
  EXPECT_EQ(ledger.live(0), 100U) << "not the card's";
  EXPECT_EQ(ledger.spilled(), 100U);
  EXPECT_EQ(ledger.free_shown(0, 500), 0U);
  ledger.refused(small, "spill=full");
  const auto taken = ledger.take(0x2000);
  ASSERT_TRUE(taken && taken->spilled);
  ledger.freed(0x2000, *taken, 0);
  EXPECT_EQ(ledger.spilled(), 0U);
  EXPECT_EQ(ledger.live(0), 100U);
  ledger.end();
  const std::string text = contents_of(path);
  EXPECT_THAT(text, HasSubstr(",alloc,device,0,0,0x1000,100,100,0,\n"));
  EXPECT_THAT(text, HasSubstr(",alloc,device,0,0,0x2000,100,100,0,place=host\n"));
  EXPECT_THAT(text, HasSubstr(",free,device,0,0,0x2000,100,100,0,place=host\n"));
  EXPECT_THAT(text, HasSubstr(",refused,device,0,0,0x0,100,100,0,spill=full\n"));
  EXPECT_THAT(text, HasSubstr(",spilled,-,-1,0,0x0,100,0,0,1\n")) << "the most, and how many";
}

TEST(Ledger, LosesSpilledMemoryWithItsContext) {
  Ledger ledger({});
  Block block = small;
  block.spilled = true;
  ledger.granted(0x2000, block);
  ledger.context_gone(small.context);
  EXPECT_EQ(ledger.spilled(), 0U);
  EXPECT_EQ(ledger.live(0), 0U);
}

TEST(Ledger, TakesBackWhatWentToTheHostInstead) {
  Ledger ledger({.limit = 100});
  ASSERT_TRUE(ledger.admit(small));
  ledger.give_back(small);
  EXPECT_EQ(ledger.live(0), 0U);
  EXPECT_TRUE(ledger.admit(small));
}

TEST(Ledger, LeavesAGraphsMemoryOutOfTheAccount) {
  Ledger ledger({.limit = 1});
  const Block node = with(small, Kind::graph);
  EXPECT_TRUE(ledger.admit(node));
  ledger.granted(0x1000, node);
  EXPECT_EQ(ledger.live(0), 0U);
  EXPECT_FALSE(ledger.take(0x1000));
}

TEST(Ledger, NumbersStreamsApart) {
  const TemporaryFolder folder;
  const std::string path = folder.make("record", "");
  Ledger ledger({.record = path});
  Block block = small;
  block.stream = 0xabcdef;
  ledger.granted(0x1000, block);
  ledger.stream_gone(0xabcdef);
  ledger.granted(0x2000, block);
  ledger.end();
  EXPECT_THAT(contents_of(path), HasSubstr("alloc,device,0,3,0x1000"));
  EXPECT_THAT(contents_of(path), HasSubstr("alloc,device,0,4,0x2000"));
}

TEST(Ledger, RecordsTotalsAlone) {
  const TemporaryFolder folder;
  const std::string path = folder.make("record", "");
  Ledger ledger({.record = path, .every_call = false, .program = "name"});
  ledger.announce();
  EXPECT_THAT(contents_of(path), HasSubstr(",process,"));
  for (std::uint64_t address : {0x1000U, 0x2000U, 0x3000U}) {
    ASSERT_TRUE(ledger.admit(small));
    ledger.granted(address, small);
  }
  ledger.try_end();
  const std::string text = contents_of(path);
  EXPECT_THAT(text, Not(HasSubstr("alloc")));
  EXPECT_THAT(text, HasSubstr(",calls,-,-1,0,0x0,0,0,0,1\n")) << "the first call is known at once";
  EXPECT_THAT(text, HasSubstr(",calls,-,-1,0,0x0,0,0,0,3\n"));
  EXPECT_THAT(text, HasSubstr(",total,-,0,0,0x0,300,300,0,\n"));
}

TEST(Ledger, IsEmptyInAChild) {
  Ledger ledger({});
  ASSERT_TRUE(ledger.admit(small));
  ledger.granted(0x1000, small);
  ledger.before_fork();
  const pid_t child = fork();
  if (child == 0) {
    ledger.after_fork_in_child();
    _exit(ledger.live(0) == 0 && !ledger.take(0x1000) ? 0 : 1);
  }
  ledger.after_fork_in_parent();
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(ledger.live(0), 100U);
}

TEST(Ledger, IsSharedByThreads) {
  Ledger ledger({.limit = 400});
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 8; ++t) {
    threads.emplace_back([&ledger, t] {
      for (int i = 0; i < 200; ++i) {
        if (!ledger.admit(small)) continue;
        ledger.granted(0x1000 + t, small);
        if (ledger.live(0) > 400) std::abort();
        if (const auto block = ledger.take(0x1000 + t)) ledger.freed(0x1000 + t, *block, t);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ledger.live(0), 0U);
}

}  // namespace
}  // namespace stowage::interpose
