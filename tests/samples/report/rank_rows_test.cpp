#include "samples/report/rank_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stowage::samples {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<RankRow> two_rows() {
  std::vector<RankRow> rows{{.rank = 0,
                             .steps = 12,
                             .planned_peak_bytes = 3_MiB,
                             .device_peak_bytes = 2_MiB,
                             .stall_fraction = 1.0 / 3,
                             .h2d_bytes = 5,
                             .d2h_bytes = 6,
                             .peer_bytes = 7_KiB,
                             .collective_seconds = 0.25},
                            {.rank = 1, .steps = 12, .collective_seconds = 0.125}};
  set_waiting(rows);
  return rows;
}

TEST(RankRows, HaveTheMeansOfTheSteadySteps) {
  Plan plan;
  plan.device_peak_bytes = 3_MiB;
  samples::Setup setup;
  setup.plan = &plan;
  setup.machine.overhead_bytes = 1_MiB;
  RunStatistics run;
  for (const double seconds : {100.0, 100.0, 1.0, 3.0}) {
    StepReport report;
    report.seconds = report.collective_seconds = seconds;
    report.stall_fraction = 0.5;
    report.device_peak_bytes = 2_MiB;
    report.h2d_bytes = 5;
    report.d2h_bytes = 6;
    report.peer_bytes = 7;
    run.add(report);
  }
  const RankRow row = row_of(3, setup, run);
  EXPECT_EQ(row.rank, 3U);
  EXPECT_EQ(row.steps, 4U);
  EXPECT_EQ(row.planned_peak_bytes, 4_MiB);
  EXPECT_EQ(row.device_peak_bytes, 3_MiB);
  EXPECT_EQ(row.stall_fraction, 0.5);
  EXPECT_EQ(row.h2d_bytes, 5U);
  EXPECT_EQ(row.d2h_bytes, 6U);
  EXPECT_EQ(row.peer_bytes, 7U);
  EXPECT_EQ(row.collective_seconds, 2);
}

TEST(RankRows, WaitForTheRankThatComesLast) {
  const std::vector<RankRow> rows = two_rows();
  EXPECT_EQ(rows[0].waiting_seconds, 0.125);
  EXPECT_EQ(rows[1].waiting_seconds, 0);
  std::vector<RankRow> none;
  set_waiting(none);
}

TEST(RankRows, AreReadBackExactly) {
  const std::vector<RankRow> rows = two_rows();
  const std::string text = to_json_line(rows[0]) + '\n' + to_json_line(rows[1]) + '\n';
  const std::vector<RankRow> back = rows_of_json_lines(text);
  ASSERT_EQ(back.size(), 2U);
  EXPECT_EQ(back[0].stall_fraction, 1.0 / 3);
  EXPECT_EQ(back[0].peer_bytes, 7_KiB);
  EXPECT_EQ(to_json_line(back[0]) + '\n' + to_json_line(back[1]) + '\n', text);
}

TEST(RankRows, AreLinesAndATableForPeople) {
  EXPECT_EQ(describe({}), "");
  const std::vector<RankRow> rows = two_rows();
  EXPECT_THAT(describe(rows), HasSubstr("\n  rank 0          3.00 MiB     2.00 MiB    33.3%"));
  const RunTable table = table_of(rows);
  EXPECT_EQ(table.columns.size(), 9U);
  ASSERT_EQ(table.rows.size(), 2U);
  EXPECT_THAT(table.rows[0], ElementsAre("0", "3.00 MiB", "2.00 MiB", "33.3%", "5 B", "6 B", "7.00 KiB",
                                         "250.0 ms", "125.0 ms"));
}

}  // namespace
}  // namespace stowage::samples
