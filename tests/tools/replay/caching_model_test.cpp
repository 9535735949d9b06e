#include "tools/replay/caching_model.h"

#include <gtest/gtest.h>

#include <random>

#include "stowage/error.h"
#include "tests/support/checked_model.h"
#include "tests/support/random_trace.h"
#include "tools/replay/replay.h"

namespace stowage {
namespace {

TEST(CachingModel, ReservesWhatIsMapped) {
  CachingModel model;
  EXPECT_EQ(model.reserved_bytes(), 0U);
  model.allocate(0, 3_MiB, 0);
  EXPECT_EQ(model.reserved_bytes(), 4_MiB);
  model.free(0);
  model.release_cached();
  EXPECT_EQ(model.reserved_bytes(), 0U);
}

TEST(CachingModel, TakesNoMoreThanTheLimit) {
  CachingModel model(8_MiB);
  model.allocate(0, 6_MiB, 1);
  EXPECT_THROW(model.allocate(1, 3_MiB, 0), OutOfMemory);
  model.free(0);
  model.allocate(1, 8_MiB, 0);
  EXPECT_EQ(model.reserved_bytes(), 8_MiB);
}

TEST(CachingModel, GivesNoByteTwice) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 8; ++round) {
    const AllocationTrace trace = test::random_trace(random, 200);
    CachingModel alone(round % 2 == 0 ? 64_MiB : 1_GiB);
    test::CheckedModel checked(alone);
    EXPECT_NO_THROW(replay(trace, checked));
    CachingModel planned(16_GiB, true);
    test::CheckedModel checked_plan(planned);
    EXPECT_NO_THROW(replay(trace, checked_plan));
  }
}

}  // namespace
}  // namespace stowage
