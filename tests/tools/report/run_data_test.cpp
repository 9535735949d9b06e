#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "stowage/error.h"
#include "tests/tools/report/small_step.h"
#include "tools/report/check_report_input.h"
#include "tools/report/report_data.h"

namespace stowage::report {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

RunHistory run_of(std::vector<RunColumn> columns, bool logarithmic = false) {
  RunHistory run;
  run.charts.push_back({"loss </script>", logarithmic, {{"line", true, std::move(columns)}}});
  return run;
}

void expect_run_refused(std::vector<RunColumn> columns, bool logarithmic = false) {
  try {
    require_run(run_of(std::move(columns), logarithmic));
    FAIL() << "accepted";
  } catch (const InvalidInput& error) {
    EXPECT_THAT(error.what(), HasSubstr("of 'line' in the chart 'loss </script>'"));
  }
}

TEST(RunData, HoldsEveryColumn) {
  const RunHistory run = run_of({{1, 2, 0.5, 1, 4}, {4, 4, 3, 3, 3}});
  EXPECT_NO_THROW(require_run(run));
  const json wanted = {
      {{"title", "loss </script>"},
       {"logarithmic", false},
       {"lines",
        {{{"name", "line"}, {"points", true}, {"columns", {1, 2, 0.5, 1.0, 4.0, 4, 4, 3.0, 3.0, 3.0}}}}}}};
  EXPECT_EQ(run_data(run), wanted);
}

TEST(RunData, ColumnsOutOfOrderAreRefused) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_NO_THROW(require_run(run_of({{1, 1, -1, 0, 0}})));
  expect_run_refused({{2, 1, 0, 0, 0}});
  expect_run_refused({{1, 2, 0, 0, 0}, {2, 3, 0, 0, 0}});
  expect_run_refused({{1, 1, 1, 0, 2}});
  expect_run_refused({{1, 1, 1, 3, 2}});
  expect_run_refused({{1, 1, nan, 0, 0}});
  expect_run_refused({{1, 1, 0, nan, 0}});
  expect_run_refused({{1, 1, 0, 0, infinity}});
  expect_run_refused({{1, 1, 0, 1, 2}}, true);
  EXPECT_NO_THROW(require_run(run_of({{1, 1, 0.5, 1, 2}}, true)));
}

TEST(RunData, IsInThePageWhereThereIsARun) {
  const SmallStep step;
  const std::string without = plan_report(step.graph, step.plan, step.machine);
  EXPECT_THAT(without, HasSubstr("\"run\":[]"));
  ReportOptions options;
  options.run = run_of({{1, 2, 0.5, 1, 4}});
  options.run->groups = {{"A <title>", {{"a <label>", "a <value>", "a <note>"}}}};
  const std::string page = plan_report(step.graph, step.plan, step.machine, options);
  EXPECT_THAT(page, HasSubstr("[1,2,0.5,1.0,4.0]"));
  EXPECT_THAT(page, HasSubstr("<h2>A &lt;title&gt;</h2>"));
  EXPECT_THAT(page,
              HasSubstr("<dt>a &lt;label&gt;</dt><dd>a &lt;value&gt; <small>a &lt;note&gt;</small></dd>"));
  EXPECT_EQ(page.find("loss </script>"), std::string::npos);
  EXPECT_EQ(page.find("class=\"failure\""), std::string::npos);
  options.run->failure = "a <failure>";
  EXPECT_THAT(plan_report(step.graph, step.plan, step.machine, options),
              HasSubstr("<p class=\"failure\"><b>failed</b> a &lt;failure&gt;</p>"));
  options.run->charts[0].lines[0].columns[0].mean = 5;
  EXPECT_THROW(plan_report(step.graph, step.plan, step.machine, options), InvalidInput);
}

}  // namespace
}  // namespace stowage::report
