#include "tools/report/tally.h"

#include <gtest/gtest.h>

#include "tests/support/literal_plan.h"

namespace stowage {
namespace {

TEST(Tally, CountsEachFate) {
  const test::LiteralPlan literal;
  const PlanTally where = tally(literal.graph, literal.plan);
  EXPECT_EQ(where.resident.bytes, 40U);
  EXPECT_EQ(where.held.bytes, 80U);
  EXPECT_EQ(where.streamed.bytes, 120U);
  EXPECT_EQ(where.optimizer_host.count, 1U);
  EXPECT_EQ(where.optimizer_device.count, 0U);
  EXPECT_EQ(where.kept.count, 1U);
  EXPECT_EQ(where.kept.bytes, 400U);
  EXPECT_EQ(where.recomputed.bytes, 800U);
  EXPECT_EQ(where.offloaded.bytes, 1200U);
}

TEST(Tally, IsTold) {
  EXPECT_EQ(text(Tally{3, 2048}), "3 (2.00 KiB)");
  const test::LiteralPlan literal;
  EXPECT_EQ(parameter_count(literal.graph), 60U);
}

}  // namespace
}  // namespace stowage
