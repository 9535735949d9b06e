#include "samples/run/patience.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace stowage::samples {
namespace {

TEST(Patience, IsOverAfterSoManyEvaluationsWithoutANewLeastLoss) {
  Patience patience(2);
  EXPECT_FALSE(patience.is_over());
  EXPECT_EQ(patience.text(), "");
  for (const auto& [step, loss] : {std::pair{10, 3.0}, {20, 3.5}, {30, 2.0}, {40, 2.0}}) {
    patience.add(static_cast<std::uint64_t>(step), loss);
    EXPECT_FALSE(patience.is_over()) << step;
  }
  patience.add(50, 2.5);
  EXPECT_TRUE(patience.is_over());
  EXPECT_EQ(patience.least(), (LeastScore{2, 30, 2}));
  EXPECT_EQ(patience.text(), "2 evaluations in a row without a lower loss than 2.0000, of step 30");
}

TEST(Patience, GoesOnWithTheCountOfACheckpoint) {
  Patience patience(3);
  patience.resume({.score = 1, .step = 5, .since = 2});
  EXPECT_FALSE(patience.is_over());
  patience.add(20, 1.5);
  EXPECT_TRUE(patience.is_over());
  patience.add(30, 0.5);
  EXPECT_FALSE(patience.is_over());
}

TEST(Patience, ALossThatIsNotFiniteIsNoNewLeastOne) {
  Patience patience(2);
  patience.add(1, std::nan(""));
  patience.add(2, 1);
  patience.add(3, std::nan(""));
  patience.add(4, -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(patience.is_over());
  EXPECT_EQ(patience.least()->step, 2U);
}

TEST(Patience, WithoutANumberIsNeverOver) {
  Patience patience(0);
  for (std::uint64_t step = 1; step < 100; ++step) patience.add(step, static_cast<double>(step));
  EXPECT_FALSE(patience.is_over());
  EXPECT_FALSE(patience.least());
}

}  // namespace
}  // namespace stowage::samples
