#include "samples/report/run_history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "stowage/planner.h"

namespace stowage::samples {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(ColumnLine, KeepsFewSteps) {
  ColumnLine line;
  for (std::uint64_t step = 7; step < 7 + ColumnLine::most_columns; ++step)
    line.add(step, static_cast<double>(step * step));
  const auto columns = line.columns();
  ASSERT_EQ(columns.size(), ColumnLine::most_columns);
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const std::uint64_t step = 7 + i;
    EXPECT_EQ(columns[i].first, step);
    EXPECT_EQ(columns[i].last, step);
    for (double value : {columns[i].least, columns[i].mean, columns[i].most})
      EXPECT_EQ(value, static_cast<double>(step * step));
  }
}

// Against all values at once, whatever the number of steps.
TEST(ColumnLine, HoldsTheLeastMeanAndMostOfManySteps) {
  for (const std::uint64_t steps : {513U, 1024U, 1025U, 5000U, 1000003U}) {
    ColumnLine line;
    const auto value = [](std::uint64_t step) { return static_cast<double>(step * 2654435761U % 1009); };
    for (std::uint64_t step = 1; step <= steps; ++step) line.add(step, value(step));
    const auto columns = line.columns();
    EXPECT_LE(columns.size(), ColumnLine::most_columns);
    EXPECT_GT(columns.size(), ColumnLine::most_columns / 2);
    std::uint64_t next = 1;
    for (const RunColumn& column : columns) {
      ASSERT_EQ(column.first, next);
      double least = value(next), most = least, sum = 0;
      for (; next <= column.last; ++next) {
        least = std::min(least, value(next));
        most = std::max(most, value(next));
        sum += value(next);
      }
      EXPECT_EQ(column.least, least);
      EXPECT_EQ(column.most, most);
      EXPECT_DOUBLE_EQ(column.mean, sum / static_cast<double>(column.last - column.first + 1));
    }
    EXPECT_EQ(next, steps + 1);
  }
}

// As evaluations are, and steps of a resumed run.
TEST(ColumnLine, StepsMayBeFarApart) {
  ColumnLine line;
  const std::uint64_t far = std::uint64_t{1} << 40;
  for (std::uint64_t i = 0; i < 700; ++i) line.add(far + i * i * 1000, static_cast<double>(i));
  const auto columns = line.columns();
  EXPECT_LE(columns.size(), ColumnLine::most_columns);
  EXPECT_GT(columns.size(), 100U);
  EXPECT_EQ(columns.front().first, far);
  EXPECT_EQ(columns.back().last, far + 699 * 699 * 1000);
  for (std::size_t i = 1; i < columns.size(); ++i) EXPECT_LT(columns[i - 1].last, columns[i].first);
}

TEST(ColumnLine, LeavesOutWhatIsNotFinite) {
  ColumnLine line;
  line.add(1, std::numeric_limits<double>::quiet_NaN());
  line.add(2, 5);
  line.add(3, std::numeric_limits<double>::infinity());
  ASSERT_EQ(line.columns().size(), 1U);
  EXPECT_EQ(line.columns()[0].first, 2U);
}

// A mean of equal values is that value.
TEST(ColumnLine, TheMeanIsWithinTheRange) {
  ColumnLine line;
  for (std::uint64_t step = 1; step <= 3000; ++step) line.add(step, 0.1);
  for (const RunColumn& column : line.columns()) EXPECT_EQ(column.mean, 0.1);
}

class RunPage : public ::testing::Test {
 protected:
  RunPage() {
    options_.model = {.layers = 1, .width = 8, .heads = 2, .vocabulary = 16, .sequence = 4, .batch = 1};
    GraphBuilder builder;
    const BuiltModel model = gpt(builder, options_.model);
    graph_ = builder.finish(model.loss, optimizer_of(options_));
    plan_ = std::get<Plan>(make_plan(graph_, Machine{}, {}, {.policy = Policy::none}));
    setup_.options = &options_;
    setup_.graph = &graph_;
    setup_.plan = &plan_;
    setup_.need = setup_.peak = plan_.device_peak_bytes;
    setup_.device = "a device <of> some kind";
  }

  void add_steps(std::uint64_t steps) {
    for (std::uint64_t step = statistics_.steps(); step < steps; ++step) {
      StepRecord record;
      record.report.step = step;
      record.report.loss = 3;
      record.report.grad_norm = step == 0 ? 0 : 0.5;
      record.report.seconds = 0.25;
      record.learning_rate = 0.125;
      statistics_.add(record.report);
      recorder_.add(record);
    }
  }

  const RunLine& line(const RunHistory& history, std::size_t chart, std::size_t index) const {
    return history.charts.at(chart).lines.at(index);
  }

  Options options_;
  Graph graph_;
  Plan plan_;
  samples::Setup setup_;
  RunStatistics statistics_;
  RunRecorder recorder_;
};

TEST_F(RunPage, HasALineForEachValueAndPointsForEvaluations) {
  add_steps(10);
  recorder_.add_evaluation("held out, nats", 5, 3.5);
  recorder_.add_evaluation("accuracy", 5, 0.25);
  recorder_.add_evaluation("held out, nats", 10, 3.25);
  const RunHistory history = recorder_.history(setup_, statistics_);
  ASSERT_EQ(history.charts.size(), 4U);
  EXPECT_EQ(line(history, 0, 0).columns.size(), 10U);
  EXPECT_EQ(line(history, 0, 0).columns[9].mean, 3);
  ASSERT_EQ(history.charts[0].lines.size(), 3U);
  EXPECT_EQ(line(history, 0, 1).name, "held out, nats");
  EXPECT_TRUE(line(history, 0, 1).points);
  ASSERT_EQ(line(history, 0, 1).columns.size(), 2U);
  EXPECT_EQ(line(history, 0, 1).columns[1].first, 10U);
  EXPECT_EQ(line(history, 0, 1).columns[1].mean, 3.25);
  EXPECT_EQ(line(history, 1, 0).columns[0].mean, 0.125);
  EXPECT_EQ(line(history, 2, 0).columns.size(), 9U);  // nothing has no logarithm
  EXPECT_EQ(line(history, 3, 0).columns[3].mean, 0.25);
  EXPECT_EQ(line(history, 3, 1).columns[0].mean, plan_.predicted_step_seconds);
  EXPECT_EQ(line(history, 3, 2).columns[0].mean, plan_.lower_bound_seconds);
  EXPECT_EQ(line(history, 3, 2).columns[0].last, 10U);
}

TEST_F(RunPage, BeginsWithWhatTheLogHasOfTheStepsBefore) {
  recorder_.add_before(3, R"({"step": 1, "loss": 5, "grad_norm": 0, "learning_rate": 0.5}
{"step": 2, "loss": null, "grad_norm": 2, "learning_rate": 0.25}
{"step": 2, "evaluation": {"loss": 4.5, "perplexity": 90}, "best": true}
{"step": 2, "evaluation": {"loss": 4.75, "perplexity": 99}, "best": false}
{"step": "x", "loss": 1}
no line of a log
)");
  const RunHistory history = recorder_.history(setup_, statistics_);
  ASSERT_EQ(history.groups.size(), 1U);  // nothing was measured
  EXPECT_EQ(history.groups[0].facts.at(0).label, "steps before");
  EXPECT_EQ(history.groups[0].facts.at(0).value, "3");
  EXPECT_EQ(history.groups[0].facts.at(0).note, "2 shown, from --log");
  EXPECT_EQ(history.groups[0].facts.at(1).label, "evaluation: loss");
  EXPECT_EQ(history.groups[0].facts.at(1).value, "4.7500");
  EXPECT_EQ(history.groups[0].facts.at(2).label, "evaluation: perplexity");
  EXPECT_EQ(history.groups[0].facts.at(3).label, "best so far");
  EXPECT_EQ(history.groups[0].facts.at(3).value, "step 2");
  ASSERT_EQ(line(history, 0, 0).columns.size(), 1U);
  EXPECT_EQ(line(history, 0, 0).columns[0].mean, 5);
  EXPECT_EQ(line(history, 0, 1).name, "evaluation: loss");
  EXPECT_EQ(line(history, 0, 1).columns.at(0).first, 2U);
  EXPECT_EQ(line(history, 1, 0).columns.at(1).mean, 0.25);
  EXPECT_EQ(line(history, 2, 0).columns.at(0).first, 2U);
  EXPECT_TRUE(line(history, 3, 0).columns.empty());
  EXPECT_THAT(run_page(setup_, statistics_, recorder_), HasSubstr("</html>"));
}

TEST_F(RunPage, SaysWhyItStoppedEvenBeforeTheFirstStep) {
  recorder_.add_before(7, "");
  recorder_.stop("step 8: loss NaN");
  const auto facts = recorder_.history(setup_, statistics_).groups.at(0).facts;
  EXPECT_THAT(facts.at(0).note, HasSubstr("--log has none"));
  EXPECT_EQ(facts.at(1).value, "after step 7");
  EXPECT_EQ(facts.at(1).note, "step 8: loss NaN");
}

// In red, and on an axis on which the first steps can be seen.
TEST_F(RunPage, ADivergedRunSaysSoAtTheTop) {
  const auto add = [&](std::uint64_t step, double loss) {
    StepRecord record;
    record.report.step = step;
    record.report.loss = loss;
    record.report.seconds = 0.25;
    statistics_.add(record.report);
    recorder_.add(record);
  };
  add(0, 5);
  add(1, 4);
  EXPECT_FALSE(recorder_.history(setup_, statistics_).charts.at(0).logarithmic);
  EXPECT_THAT(run_page(setup_, statistics_, recorder_), Not(HasSubstr("class=\"failure\"")));
  add(2, 1e17);
  recorder_.fail("step 4: loss NaN");
  EXPECT_TRUE(recorder_.history(setup_, statistics_).charts.at(0).logarithmic);
  const std::string page = run_page(setup_, statistics_, recorder_);
  const std::size_t failure = page.find("<p class=\"failure\"><b>failed</b> step 4: loss NaN</p>");
  ASSERT_NE(failure, std::string::npos);
  EXPECT_LT(failure, page.find("class=\"verdict"));
  EXPECT_THAT(page, HasSubstr("<dd>3.333e+16 nats"));
  add(3, 0);  // which has no logarithm
  EXPECT_FALSE(recorder_.history(setup_, statistics_).charts.at(0).logarithmic);
}

TEST_F(RunPage, ItsTitleIsThatOfThePlansReport) {
  EXPECT_EQ(model_title(options_), "gpt, 1 layers, width 8, heads 2, vocabulary 16");
  options_.family = &bert_family;
  EXPECT_THAT(run_page(setup_, statistics_, recorder_), HasSubstr("<bdi>bert, 1 layers, width 8"));
}

TEST_F(RunPage, ItsStallsAreTheMeasuredAndThePlanned) {
  add_steps(5);
  const std::string page = run_page(setup_, statistics_, recorder_);
  EXPECT_THAT(page, HasSubstr("<dt>measured stall</dt><dd>0.0% <small>planned "));
  EXPECT_THAT(page, HasSubstr("<dt>planned stall</dt>"));
}

TEST_F(RunPage, HasARowOfEachDevice) {
  add_steps(3);
  EXPECT_TRUE(recorder_.history(setup_, statistics_).tables.empty());
  recorder_.set_rows({{.rank = 0, .peer_bytes = 3_MiB}, {.rank = 1}});
  const RunHistory history = recorder_.history(setup_, statistics_);
  ASSERT_EQ(history.tables.size(), 1U);
  EXPECT_EQ(history.tables[0].rows.size(), 2U);
  const std::string page = run_page(setup_, statistics_, recorder_);
  EXPECT_THAT(page, HasSubstr("<h2>Each device</h2>"));
  EXPECT_THAT(page, HasSubstr("<td>3.00 MiB</td>"));
}

TEST_F(RunPage, IsOnePageWithItsPlan) {
  add_steps(10);
  const std::string page = run_page(setup_, statistics_, recorder_);
  for (const char* part : {"<!DOCTYPE html>", "<h2>Run</h2>", "<h2>Measured time</h2>", "<dd>250.0 ms",
                           "gpt, 1 layers, width 8", "a device &lt;of&gt; some kind"})
    EXPECT_THAT(page, HasSubstr(part));
}

TEST_F(RunPage, DoesNotGrowWithTheSteps) {
  add_steps(2000);
  const std::size_t some = run_page(setup_, statistics_, recorder_).size();
  add_steps(100000);
  EXPECT_LT(run_page(setup_, statistics_, recorder_).size(), some + 40000);
}

TEST_F(RunPage, IsThatOfThePlanWhereNoStepWasMade) {
  EXPECT_TRUE(recorder_.history(setup_, statistics_).charts.empty());
  EXPECT_THAT(run_page(setup_, statistics_, recorder_), HasSubstr("plan-data"));
}

}  // namespace
}  // namespace stowage::samples
