// Programs that need more than the card has, under `stowage run --spill`, over the fakes.
#include "tests/allocator/interpose/interposed_programs.h"

namespace stowage {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string spiller = INTERPOSED_SPILL_PROGRAM;

// Where the memory comes from: the driver's virtual memory management, or page-locked memory.
class SpillingPrograms : public InterposedPrograms, public ::testing::WithParamInterface<const char*> {
 protected:
  Ran run_way(const std::string& way, const std::string& options, const std::string& card = "") {
    return run(spiller + ' ' + way + ' ' + GetParam() + ' ' + card, options);
  }
  RunSpill spilled() const {
    RunSpill sum;
    for (const auto& [id, process] : record_.processes) {
      sum.calls += process.spill.calls;
      sum.bytes += process.spill.bytes;
      sum.live += process.spill.live;
      sum.peak += process.spill.peak;
      sum.full += process.spill.full;
      sum.failed += process.spill.failed;
    }
    return sum;
  }
};

INSTANTIATE_TEST_SUITE_P(From, SpillingPrograms, ::testing::Values("mapped", "pinned"),
                         [](const auto& source) { return std::string(source.param); });

TEST_P(SpillingPrograms, ThatNeedMoreThanTheLimitFinish) {
  const std::string report = folder_.file("report.txt");
  expect_all_caught(
      run_way("overflow", "--limit 20MiB --spill 8MiB --report " + report, std::to_string(20_MiB)));
  expect_all_freed();
  EXPECT_EQ(spilled().calls, 6U) << "26 MiB in all, of which the card has 20";
  EXPECT_EQ(spilled().bytes, 6_MiB);
  EXPECT_EQ(spilled().peak, 6_MiB);
  EXPECT_EQ(spilled().live, 0U);
  for (const auto& [id, process] : record_.processes) {
    for (const auto& [device, card] : process.cards) EXPECT_EQ(card.peak, 20_MiB);
  }
  EXPECT_THAT(record_text(), Not(HasSubstr(",refused,")));
  const std::string text = contents_of(report);
  EXPECT_THAT(text,
              HasSubstr("spilled       6 allocations of 6.00 MiB (6291456 bytes) went to the host, 23.1 % of "
                        "the bytes asked of the card; 6.00 MiB (6291456 bytes) at most at one time\n"));
  EXPECT_THAT(text, HasSubstr("how often, and what that took, is not measured"));
}

TEST_P(SpillingPrograms, FailCleanlyWithoutIt) {
  EXPECT_EQ(code(run_way("overflow", "--limit 20MiB", std::to_string(20_MiB))), 3);
  EXPECT_THAT(record_text(), HasSubstr(",refused,device,0,0,0x0,1048576,20971520,0,\n"));
  EXPECT_EQ(spilled().calls, 0U);
}

TEST_P(SpillingPrograms, FailCleanlyWhereItIsUsedUp) {
  const std::string report = folder_.file("report.txt");
  const Ran ran =
      run_way("overflow", "--limit 20MiB --spill 4MiB --report " + report, std::to_string(20_MiB));
  EXPECT_EQ(code(ran), 3);
  EXPECT_EQ(caught(record_), asked_for(ran.output));
  EXPECT_EQ(spilled().bytes, 4_MiB) << "not a byte more of the host than was allowed";
  EXPECT_EQ(spilled().full, 1U);
  EXPECT_THAT(record_text(), HasSubstr(",refused,device,0,0,0x0,1048576,20971520,0,spill=full\n"));
  EXPECT_THAT(contents_of(report),
              HasSubstr("1 allocation found the host memory of --spill used up, and failed"));
}

TEST_P(SpillingPrograms, GoOnWhereTheDriverHasNoMore) {
  // The fake's context takes 64 MiB.
  expect_all_caught(run(spiller + " overflow " + GetParam() + ' ' + std::to_string(20_MiB), "--spill 8MiB",
                        "STOWAGE_FAKE_CUDA_MEMORY=" + std::to_string(84_MiB)));
  expect_all_freed();
  EXPECT_EQ(spilled().bytes, 6_MiB);
  EXPECT_THAT(record_text(), Not(HasSubstr(",failed,")));
}

TEST_P(SpillingPrograms, TakeEveryKindForTheCards) {
  expect_all_caught(run_way("every_kind", "--limit 1 --spill 16MiB"));
  expect_all_freed();
  EXPECT_EQ(caught(record_).size(), 5U);
  EXPECT_EQ(spilled().bytes, 3_MiB + 19000) << "all but the managed";
  EXPECT_THAT(record_text(), HasSubstr(",alloc,pitched,0,0,0x"));
}

TEST_P(SpillingPrograms, CannotExportIt) {
  const std::string report = folder_.file("report.txt");
  expect_all_caught(run_way("shares", "--limit 1 --spill 4MiB --report " + report));
  EXPECT_EQ(record_.exports, 0U);
  EXPECT_EQ(record_.not_exported, 1U);
  EXPECT_THAT(contents_of(report), HasSubstr("1 call to share memory with other processes failed"));
}

TEST_P(SpillingPrograms, HaveItFreedInTheOrderOfTheirWork) {
  expect_all_caught(run_way("order", "--limit 1 --spill 8MiB"));
  expect_all_freed();
}

TEST_P(SpillingPrograms, ThatCaptureGraphsKeepThemTheDrivers) {
  expect_all_caught(run_way("capture", "--limit 1 --spill 8MiB"));
  EXPECT_EQ(spilled().bytes, 800U + 10_MiB);
}

TEST_P(SpillingPrograms, LoseWhatContextsTakeAlong) {
  expect_all_caught(run_way("contexts", "--limit 1 --spill 16MiB"));
  expect_all_freed();
  EXPECT_EQ(spilled().live, 0U);
}

// Mapping takes more calls than page-locking, so more of them fail.
TEST_P(SpillingPrograms, LoseNothingWhereACallOfTheDriverFails) {
  const Ran ran = run_way("faults", "--limit 1 --spill 64MiB");
  EXPECT_EQ(code(ran), 0) << ran.output;
  EXPECT_GT(asked_for(ran.output)["faults"], 40U);
  EXPECT_EQ(spilled().live, 0U);
  expect_all_freed();
}

TEST_P(SpillingPrograms, ThatForkSpillInBothProcesses) {
  expect_all_caught(run_way("fork", "--limit 1 --spill 4MiB"));
  expect_all_freed();
  EXPECT_EQ(spilled().bytes, 3000U);
}

TEST_P(SpillingPrograms, OfSeveralThreadsShareIt) {
  expect_all_caught(run_way("threads", "--limit 1 --spill 64MiB"));
  expect_all_freed();
  expect_replays();
}

TEST_P(SpillingPrograms, HaveTheirSmallBlocksTogether) {
  expect_all_caught(run_way("small_ones", "--limit 1 --spill 2MiB"));
  expect_all_freed();
}

TEST_P(SpillingPrograms, HaveBlocksOfAllSizesApart) {
  expect_all_caught(run_way("scattered_ones", "--limit 1 --spill 1GiB"));
  expect_all_freed();
}

TEST_P(SpillingPrograms, ThatWereRecordedCanBeReplayed) {
  expect_all_caught(run_way("overflow", "--limit 20MiB --spill 8MiB", std::to_string(20_MiB)));
  const Ran replayed = shell("exec 2>&1; " STOWAGE_PROGRAM " replay --json --policy pytorch " + record_path_);
  EXPECT_EQ(code(replayed), 0) << replayed.output;
  EXPECT_THAT(replayed.output, HasSubstr("\"operations\": 52,"));
  EXPECT_THAT(replayed.output, HasSubstr("\"peak_live_bytes\": " + std::to_string(26_MiB) + ','));
}

}  // namespace
}  // namespace stowage
