// Programs whose cudaMalloc is served from memory that was freed before, under `stowage run --cache`, over
// the fakes.
#include "tests/allocator/interpose/interposed_programs.h"

namespace stowage {
namespace {

const std::string cacher = INTERPOSED_CACHE_PROGRAM;

class CachedPrograms : public InterposedPrograms {};

TEST_F(CachedPrograms, GetAgainWhatTheyFreed) {
  expect_all_caught(run(cacher + " reuse", "--cache"));
  expect_all_freed();
}

TEST_F(CachedPrograms, SeeEachAllocationAsTheirOwn) {
  expect_all_caught(run(cacher + " queries", "--cache"));
  EXPECT_EQ(record_.not_exported, 1U);
  expect_all_freed();
}

TEST_F(CachedPrograms, FindRoomForOtherMemoryInWhatIsKept) {
  // The fake's context takes 64 MiB.
  const std::string small_card = "STOWAGE_FAKE_CUDA_MEMORY=" + std::to_string(84_MiB);
  expect_all_caught(run(cacher + " room", "--cache", small_card));
  expect_all_freed();
}

TEST_F(CachedPrograms, LoseItWithTheirContexts) {
  expect_all_caught(run(cacher + " ends", "--cache"));
  expect_all_freed();
}

TEST_F(CachedPrograms, LoseNothingWhereACallOfTheDriverFails) {
  const Ran ran = run(cacher + " faults", "--cache");
  EXPECT_EQ(code(ran), 0) << ran.output;
  EXPECT_GT(asked_for(ran.output)["faults"], 50U);
  expect_all_freed();
}

TEST_F(CachedPrograms, ThatForkAndThatHaveThreadsAreServed) {
  expect_all_caught(run(cacher + " fork", "--cache"));
  expect_all_freed();
  expect_all_caught(run(cacher + " threads", "--cache"));
  expect_all_freed();
  expect_replays();
}

TEST_F(CachedPrograms, CaptureGraphsUndisturbed) {
  expect_all_caught(run(cacher + " capture", "--cache"));
  expect_all_freed();
  expect_all_caught(run(cacher + " capture_during_a_wait", "--cache"));
  expect_all_freed();
}

TEST_F(CachedPrograms, HaveAFreeInTheRecordBeforeItsAddressIsGivenOutAgain) {
  expect_all_caught(run(cacher + " again", "--cache"));
  expect_all_freed();
  expect_replays();
}

TEST_F(CachedPrograms, NeedNotWaitForMemoryThatOthersMap) {
  expect_all_caught(run(cacher + " meanwhile", "--cache"));
  expect_all_freed();
}

TEST_F(CachedPrograms, ThatAreOfAnyKindAreCaught) {
  for (const char* const way : {" every_kind", " virtual_memory", " fork", " threads", " capture", " streams",
                                " limit 1000000", " contexts 1000000", " export"}) {
    const std::string limit = std::string(way).ends_with("1000000") ? " --limit 1000000" : "";
    expect_all_caught(run(INTERPOSED_DRIVER_PROGRAM + std::string(way), "--cache" + limit));
  }
  expect_all_caught(run(INTERPOSED_STATIC_PROGRAM, "--cache"));
}

}  // namespace
}  // namespace stowage
