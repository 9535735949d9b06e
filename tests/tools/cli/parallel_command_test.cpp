#include "tools/cli/parallel_command.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "stowage/error.h"
#include "tests/support/expect_refused.h"
#include "tests/support/temporary_folder.h"
#include "tools/answer/parallel_answer.h"
#include "tools/answer/parallel_trace.h"

namespace stowage {
namespace {

using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Four layers of 1 s forward and 2 s backward on two devices. Two stages: 12 + 3 * 6 = 30 s, of which each
// stage works 24 s. Two chunks a stage save half of the 6 s at the ends. A stage holds 200 bytes, and 20 for
// each micro-batch in flight.
const std::string four_layers = R"({"format": "stowage.parallel_costs", "version": 1, "devices": 2,
  "batch": 16, "micro_batches": 4, "memory_bytes": 280, "layers": [{"name": "block", "repeat": 4, "variants": [
    {"name": "kept", "devices": 1, "forward_seconds": 1, "backward_seconds": 2,
     "bytes": 100, "bytes_in_flight": 10}]}]})";

// On three devices. "b" on one device: 9 + 3 * 6 = 27 s, a grid, in 500 bytes. "b" on two: 6 + 3 * 3 = 15 s.
const std::string two_layers = R"({"format": "stowage.parallel_costs", "version": 1, "devices": 3,
  "micro_batches": 4, "memory_bytes": 500, "layers": [
    {"name": "a", "variants": [
      {"name": "one", "devices": 1, "forward_seconds": 1, "backward_seconds": 2, "bytes": 200}]},
    {"name": "b", "variants": [
      {"name": "one", "devices": 1, "forward_seconds": 2, "backward_seconds": 4, "bytes": 500},
      {"name": "two", "devices": 2, "forward_seconds": 1, "backward_seconds": 2, "bytes": 250}]}]})";

class ParallelCommandTest : public ::testing::Test {
 protected:
  void ask(const std::string& text) { command_.costs_file = folder_.make("costs.json", text); }
  int run() {
    output_.clear();
    return run_parallel_command(command_, output_);
  }
  nlohmann::json json() {
    command_.json = true;
    run();
    command_.json = false;
    return nlohmann::json::parse(output_);
  }
  // Returns the outcome and the seconds of a schedule of the first grid.
  std::pair<std::string, double> simulated(std::size_t number) {
    const nlohmann::json step = json()["grids"].at(0)["simulated"][number];
    return {step["outcome"].get<std::string>(),
            step["seconds"].is_null() ? 0 : step["seconds"].get<double>()};
  }
  void expect_refused(const std::string& words) {
    test::expect_refused([&] { run(); }, words);
    EXPECT_EQ(output_, "");
  }
  TemporaryFolder folder_;
  ParallelCommand command_;
  std::string output_;
};

using Outcome = std::pair<std::string, double>;

TEST_F(ParallelCommandTest, AnswersInLinesAndTables) {
  ask(four_layers);
  EXPECT_EQ(run(), 0);
  EXPECT_THAT(output_,
              HasSubstr("layers        4 on 2 devices, 4 micro-batches, 280 B (280 bytes) of each device\n"
                        "best grid     2 stages x 1 part x 1 split: 30.00 s a step, 0.5333 samples/s\n"
                        "best of all   nothing is better than this grid\n"
                        "search        proven in "));
  EXPECT_THAT(output_, HasSubstr("beside it     as printed: 30.00 s a step, +0.0 %\n"));
  EXPECT_THAT(output_, HasSubstr("beside it     least largest stage: 30.00 s a step, +0.0 %\n"));
  EXPECT_THAT(output_, ContainsRegex("\n0 +block.0 .. block.1 +1 +1 +1 +2.00 s +4.00 s +0.0 us +0.0 us +2 +"
                                     "240 B .85.7%. +20.0%  2 x kept\n"));
  EXPECT_THAT(output_, ContainsRegex("\n1 +block.2 .. block.3 +1 +1 +1 +2.00 s +4.00 s +0.0 us +0.0 us +1 +"
                                     "220 B .78.6%. +20.0%  2 x kept\n"));
  EXPECT_THAT(output_, ContainsRegex(
                           "\n2 stages x 1 part x 1 split +30.00 s +.0.0 % +30.00 s +30.00 s +27.00 s +-\n"));
  EXPECT_THAT(output_,
              HasSubstr("The simulation finds the answer faster under interleaved 2: 27.00 s a step.\n"));
}

TEST_F(ParallelCommandTest, AnswersAsJson) {
  ask(four_layers);
  const nlohmann::json answer = json();
  EXPECT_EQ(answer["format"], "stowage.parallel");
  EXPECT_EQ(answer["version"], 1);
  EXPECT_EQ(answer["feasible"], true);
  EXPECT_EQ(answer["objective"], "step");
  EXPECT_EQ(answer["memory_bytes"], 280);
  EXPECT_EQ(answer["proven"], true);
  EXPECT_EQ(answer["grids_proven"], true);
  EXPECT_EQ(answer["stopped"], false);
  EXPECT_EQ(answer["bound_seconds"], 30.0);
  EXPECT_EQ(answer["gap"], 0.0);
  EXPECT_EQ(answer["best_of_all"], nullptr);
  EXPECT_EQ(answer["why_not"], nullptr);
  ASSERT_EQ(answer["grids"].size(), 1U);
  const nlohmann::json& grid = answer["grids"].at(0);
  EXPECT_EQ(grid["grid"], true);
  EXPECT_EQ(grid["step_seconds"], 30.0);
  EXPECT_EQ(grid["samples_per_second"], 16.0 / 30);
  ASSERT_EQ(grid["stages"].size(), 2U);
  const nlohmann::json& stage = grid["stages"][0];
  EXPECT_EQ(stage["first_layer"], "block.0");
  EXPECT_EQ(stage["last_layer"], "block.1");
  EXPECT_EQ(stage["devices"], 1);
  EXPECT_EQ(stage["variants"], (std::vector<std::string>{"kept", "kept"}));
  EXPECT_EQ(stage["forward_seconds"], 2.0);
  EXPECT_EQ(stage["backward_seconds"], 4.0);
  EXPECT_EQ(stage["in_flight"], 2);
  EXPECT_EQ(stage["bytes"], 240);
  EXPECT_NEAR(stage["bubble"].get<double>(), 0.2, 1e-12);
  EXPECT_EQ(answer["fastest_by_simulation"]["schedule"], "interleaved");
  EXPECT_EQ(answer["fastest_by_simulation"]["virtual_stages"], 2);
  EXPECT_EQ(answer["fastest_by_simulation"]["grid"], 0);
  ASSERT_EQ(answer["simpler_searches"].size(), 3U);
  for (const nlohmann::json& search : answer["simpler_searches"]) {
    EXPECT_EQ(search["step_seconds"], 30.0) << search;
    EXPECT_EQ(search["ended_early"], false) << search;
  }
}

TEST_F(ParallelCommandTest, SaysWhichSchedulesDoNotFit) {
  ask(four_layers);
  // GPipe has 4 micro-batches in flight: 200 + 4 * 20 bytes.
  EXPECT_EQ(simulated(0), Outcome("timed", 30));
  command_.memory = 279;
  EXPECT_EQ(simulated(0), Outcome("no_memory", 0));
  EXPECT_EQ(simulated(1), Outcome("timed", 30));
  // Interleaved, the first stage has five forwards of its two chunks in flight: 200 + 5 * 10 bytes.
  command_.memory = 250;
  EXPECT_EQ(simulated(2), Outcome("timed", 27));
  command_.memory = 249;
  EXPECT_EQ(simulated(2), Outcome("no_memory", 0));
  EXPECT_EQ(simulated(3), Outcome("impossible", 0));
  run();
  EXPECT_THAT(output_, ContainsRegex(" no memory +30.00 s +no memory +-\n"));
  EXPECT_THAT(output_, Not(HasSubstr("The simulation finds")));
}

// Each of two stages exchanges the gradients of its two layers, 1 s each, whether they are one chunk or two.
TEST_F(ParallelCommandTest, AddsTheExchangesOfAStagesChunks) {
  ask(R"({"format": "stowage.parallel_costs", "version": 1, "devices": 4, "use_all_devices": true,
    "micro_batches": 4, "exchange_bytes_per_second": 100, "layers": [{"name": "block", "repeat": 4, "variants": [
      {"name": "two", "devices": 2, "forward_seconds": 1, "backward_seconds": 2, "exchanged_bytes": 100}]}]})");
  EXPECT_EQ(json()["grids"].at(0)["step_seconds"], 32.0);
  EXPECT_EQ(simulated(0), Outcome("timed", 32));
  EXPECT_EQ(simulated(2), Outcome("timed", 29));
}

// Two stages of two parts take 6 + 3 * 3 s, and 0.5 s of exchange that nothing hides, for two layers in a
// stage however they are cut into chunks; four stages of one device take 12 + 3 * 3 s.
TEST_F(ParallelCommandTest, CountsTheExchangeThatNothingHides) {
  ask(R"({"format": "stowage.parallel_costs", "version": 1, "devices": 4, "batch": 16, "micro_batches": 4,
    "memory_bytes": 1000, "layers": [{"name": "block", "repeat": 4, "variants": [
      {"name": "kept", "devices": 1, "forward_seconds": 1, "backward_seconds": 2, "bytes": 100,
       "bytes_in_flight": 50},
      {"name": "halved", "parts": 2, "forward_seconds": 0.5, "backward_seconds": 1, "bytes": 100,
       "bytes_in_flight": 25, "seconds_with_exchange": 1.75}]}]})");
  const nlohmann::json best = json()["grids"].at(0);
  EXPECT_EQ(best["step_seconds"], 15.5);
  EXPECT_EQ(best["samples_per_second"], 16 / 15.5);
  ASSERT_EQ(best["stages"].size(), 2U);
  EXPECT_EQ(best["stages"][0]["parts"], 2);
  EXPECT_EQ(best["stages"][0]["bytes"], 2 * 100 + 2 * 2 * 25);
  EXPECT_EQ(best["stages"][0]["exchange_seconds"], 0.5);
  EXPECT_EQ(simulated(1), Outcome("timed", 15.5));
  EXPECT_EQ(simulated(2), Outcome("timed", 12 + 1.5 + 0.5));
}

// A send of 1000 bytes takes 1.5 s, 0.5 s of it latency. Beside the work: the step is 12 + 4 * 1.5 / 2 + 3 *
// 6 s. Within it, each stage takes 3 s more for each micro-batch.
TEST_F(ParallelCommandTest, TimesSendsBesideTheWorkOrWithinIt) {
  const std::string link =
      R"({"format": "stowage.parallel_costs", "version": 1, "devices": 2, "micro_batches": 4,
    "schedule": "gpipe", "use_all_devices": true, "cut_bytes": 1000,
    "link": {"bytes_per_second": 1000, "latency_seconds": 0.5, "sends": ")";
  const std::string layers = R"("}, "layers": [{"name": "block", "repeat": 4, "variants": [
      {"name": "kept", "devices": 1, "forward_seconds": 1, "backward_seconds": 2}]}]})";
  ask(link + "beside" + layers);
  EXPECT_EQ(json()["grids"].at(0)["step_seconds"], 33.0);
  EXPECT_EQ(simulated(0), Outcome("timed", 33));
  ask(link + "within" + layers);
  EXPECT_EQ(json()["grids"].at(0)["step_seconds"], 18.0 + 3 * 9);
  EXPECT_EQ(simulated(0), Outcome("timed", 18.0 + 3 * 9));
}

TEST_F(ParallelCommandTest, ShowsABetterPipelineThatIsNoGrid) {
  ask(two_layers);
  EXPECT_EQ(run(), 0);
  EXPECT_THAT(output_, HasSubstr("best grid     2 stages x 1 part x 1 split: 27.00 s a step\n"
                                 "best of all   2 stages, not a grid: 15.00 s a step, -44.4 %\n"));
  EXPECT_THAT(output_,
              HasSubstr("The simulation finds 2 stages, not a grid faster under GPipe: 15.00 s a step.\n"));
  EXPECT_THAT(output_, HasSubstr("beside it     as printed: 15.00 s a step, +0.0 %\n"));
  const nlohmann::json answer = json();
  EXPECT_EQ(answer["best_of_all"]["grid"], false);
  EXPECT_EQ(answer["best_of_all"]["step_seconds"], 15.0);
  EXPECT_EQ(answer["best_of_all"]["stages"][1]["devices"], 2);
  EXPECT_EQ(answer["fastest_by_simulation"]["grid"], nullptr);
  EXPECT_EQ(answer["bound_seconds"], 15.0);
}

TEST_F(ParallelCommandTest, AnswersWithoutAGridWhereNoneFits) {
  ask(two_layers);
  command_.memory = 499;
  EXPECT_EQ(run(), 0);
  EXPECT_THAT(
      output_,
      HasSubstr("best grid     none fits; the least memory that would do is 500 B (500 bytes) of each "
                "device\n"
                "best of all   2 stages, not a grid: 15.00 s a step\n"));
  EXPECT_THAT(output_, ContainsRegex("\n1 +b +2 +1 +2 +1.00 s +2.00 s "));
  const nlohmann::json answer = json();
  EXPECT_EQ(answer["grids"].size(), 0U);
  EXPECT_EQ(answer["best_of_all"]["grid"], false);
  EXPECT_EQ(answer["least_memory_of_a_grid"]["bytes"], 500);
  EXPECT_EQ(answer["least_memory_of_a_grid"]["first_layer"], "b");
  EXPECT_EQ(answer["least_memory"], nullptr);
}

TEST_F(ParallelCommandTest, SaysWhichMemoryWouldDo) {
  ask(two_layers);
  command_.memory = 249;
  command_.trace_file = folder_.file("trace.json");
  EXPECT_EQ(run(), 2);
  EXPECT_EQ(folder_.entries(), 1U);
  EXPECT_THAT(output_,
              HasSubstr("answer        no pipeline fits in 249 B of each device; the least that would do is "
                        "250 B (250 bytes), which layer b needs on 2 devices\n"));
  const nlohmann::json answer = json();
  EXPECT_EQ(answer["feasible"], false);
  EXPECT_EQ(answer["least_memory"]["bytes"], 250);
  EXPECT_EQ(answer["least_memory"]["first_layer"], "b");
  EXPECT_EQ(answer["bound_seconds"], nullptr);
  EXPECT_THAT(answer["why_not"], HasSubstr("250 B"));
  command_.memory = 250;
  EXPECT_EQ(run(), 0);
}

TEST_F(ParallelCommandTest, SaysThatNoVariantsFitTheDevices) {
  std::string text = four_layers;
  text.replace(text.find("\"devices\": 2"), 12, "\"devices\": 5, \"use_all_devices\": true");
  ask(text);
  EXPECT_EQ(run(), 2);
  EXPECT_THAT(output_,
              HasSubstr("answer        no pipeline uses all of 5 devices: the layers have no variants"));
  EXPECT_EQ(json()["least_memory"], nullptr);
}

TEST_F(ParallelCommandTest, TakesOtherDevicesMemoryAndObjective) {
  ask(two_layers);
  command_.devices = 2;
  EXPECT_EQ(json()["best_of_all"], nullptr);
  command_.memory = 499;
  EXPECT_EQ(run(), 2);
  command_.memory = unlimited;
  command_.objective = ParallelObjective::largest_stage;
  const nlohmann::json answer = json();
  EXPECT_EQ(answer["memory_bytes"], nullptr);
  EXPECT_EQ(answer["objective"], "largest_stage");
  EXPECT_EQ(answer["grids"].at(0)["value_seconds"], 6.0);
  EXPECT_EQ(answer["grids"].at(0)["step_seconds"], 27.0);
  run();
  EXPECT_THAT(output_, HasSubstr(": 6.00 s in the largest stage; 27.00 s a step\n"));
  EXPECT_THAT(output_, Not(HasSubstr("of each device\n")));
}

// 40 layers of unlike seconds and bytes on 16 devices.
std::string large_costs() {
  std::string layers;
  std::uint64_t state = 1;
  const auto draw = [&] {
    state = state * 6364136223846793005U + 1442695040888963407U;
    return 1 + (state >> 40U) % 1000;
  };
  for (int i = 0; i < 40; ++i) {
    layers += fmt::format(R"({}{{"name":"{}","variants":[)", i == 0 ? "" : ",", i);
    const auto seconds = draw(), bytes = draw();
    for (const int devices : {1, 2, 4}) {
      layers += fmt::format(
          R"({}{{"name":"{}","devices":{},"forward_seconds":{},"backward_seconds":{},"bytes":{},"bytes_in_flight":{}}})",
          devices == 1 ? "" : ",", devices, devices, static_cast<double>(seconds) / devices / 1.9,
          static_cast<double>(seconds) / devices, bytes / static_cast<std::uint64_t>(devices), draw());
    }
    layers += "]}";
  }
  return R"({"format":"stowage.parallel_costs","version":1,"devices":16,"micro_batches":8,"memory_bytes":30000,)"
         R"("layers":[)" +
         layers + "]}";
}

TEST_F(ParallelCommandTest, GivesTheBestSoFarWhenItIsStopped) {
  ask(large_costs());
  int questions = 0, last = std::numeric_limits<int>::max();
  command_.stop = [&] { return ++questions >= last; };
  const nlohmann::json whole = json();
  EXPECT_EQ(whole["proven"], true);
  const double best = whole["grids"].at(0)["step_seconds"];
  // Within the searches over grids and all pipelines, behind the first question.
  const std::uint64_t work = whole["work"], all = work + std::uint64_t{whole["work_beside"]};
  last = static_cast<int>(static_cast<std::uint64_t>(std::exchange(questions, 0)) * work / all / 2) + 1;
  EXPECT_EQ(run(), 130);
  EXPECT_EQ(questions, last);
  EXPECT_THAT(output_, ContainsRegex("\nsearch +stopped after [0-9,]+ combinations: .*nothing.* is below "));
  EXPECT_THAT(output_, Not(HasSubstr("beside it")));
  questions = 0;
  const nlohmann::json early = json();
  EXPECT_EQ(early["stopped"], true);
  EXPECT_EQ(early["proven"], false);
  EXPECT_LE(early["bound_seconds"].get<double>(), best);
  ASSERT_GT(early["grids"].size(), 0U);
  EXPECT_GE(early["grids"].at(0)["step_seconds"].get<double>(), best);
  EXPECT_GE(early["gap"].get<double>(), 0);
}

TEST_F(ParallelCommandTest, EndsAtItsLimitWithTheSameAnswerEachTime) {
  ask(large_costs());
  command_.most_work = std::uint64_t{json()["work"]} / 2;
  EXPECT_EQ(run(), 0);
  EXPECT_THAT(output_, HasSubstr("search        not proven in "));
  EXPECT_THAT(output_, HasSubstr("ended before it found a pipeline\n"));
  const std::string first = output_;
  EXPECT_EQ(run(), 0);
  EXPECT_EQ(output_, first);
  command_.most_work = 1;
  EXPECT_EQ(run(), 2);
  EXPECT_THAT(
      output_,
      HasSubstr("answer        the search ended before it found a pipeline; give it a higher --limit\n"));
}

// What is left of the limit behind the answer does not make the simpler searches find nothing.
TEST_F(ParallelCommandTest, DoesNotCallASearchFruitlessThatEndedEarly) {
  ask(four_layers);
  const std::uint64_t work = json()["work"];
  command_.most_work = work;
  const nlohmann::json answer = json();
  EXPECT_EQ(answer["proven"], true);
  for (const nlohmann::json& search : answer["simpler_searches"])
    EXPECT_EQ(search["ended_early"], true) << search;
  run();
  EXPECT_THAT(output_, Not(HasSubstr("finds no pipeline")));
}

TEST_F(ParallelCommandTest, WritesATraceOfEachMicroBatchInEachStage) {
  ask(four_layers);
  command_.trace_file = folder_.file("trace.json");
  EXPECT_EQ(run(), 0);
  const nlohmann::json trace = nlohmann::json::parse(contents_of(command_.trace_file));
  std::map<int, double> ends;
  std::map<std::pair<int, std::string>, int> seen;
  std::vector<std::string> rows;
  for (const nlohmann::json& event : trace["traceEvents"]) {
    if (event["ph"] == "M") {
      rows.push_back(event["args"]["name"]);
      continue;
    }
    const int row = event["tid"];
    EXPECT_EQ(event["ph"], "X");
    EXPECT_GE(event["ts"].get<double>(), ends[row]) << event;
    ends[row] = event["ts"].get<double>() + event["dur"].get<double>();
    ++seen[{row, event["name"]}];
    EXPECT_EQ(event["dur"], event["name"].get<std::string>().starts_with("forward") ? 2e6 : 4e6);
  }
  EXPECT_THAT(rows, ElementsAre("stage 0: block.0 .. block.1", "stage 1: block.2 .. block.3"));
  EXPECT_EQ(seen.size(), 16U);
  for (const int row : {0, 1}) {
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ((seen[{row, fmt::format("forward {}", i)}]), 1);
      EXPECT_EQ((seen[{row, fmt::format("backward {}", i)}]), 1);
    }
  }
  EXPECT_EQ(ends[0], 30e6);
  EXPECT_EQ(ends[1], 26e6);
}

TEST_F(ParallelCommandTest, RefusesATraceOfTooManyEventsBeforeItSearches) {
  std::string text = four_layers;
  text.replace(text.find("\"batch\": 16, \"micro_batches\": 4"), 31, "\"micro_batches\": 262144");
  ask(text);
  command_.trace_file = folder_.file("trace.json");
  expect_refused(
      "--trace: 262144 micro-batches in up to 2 stages may be more than 1048576 events; give at most "
      "262143 micro-batches");
  EXPECT_EQ(folder_.entries(), 1U);
  command_.trace_file.clear();
  EXPECT_EQ(run(), 0);
}

// Too many to simulate: the answer stands, the simulation's columns say nothing.
TEST_F(ParallelCommandTest, AnswersWithoutASimulationOfTooManyMicroBatches) {
  std::string text = four_layers;
  text.replace(text.find("\"batch\": 16, \"micro_batches\": 4"), 31, "\"micro_batches\": 4294967296");
  ask(text);
  EXPECT_EQ(run(), 0);
  EXPECT_THAT(output_, Not(HasSubstr("The simulation finds")));
  const nlohmann::json answer = json();
  EXPECT_EQ(answer["grids"].at(0)["step_seconds"], 12.0 + 4294967295.0 * 6);
  EXPECT_EQ(answer["grids"].at(0)["stages"][0]["bubble"], nullptr);
  EXPECT_EQ(answer["grids"].at(0)["simulated"][1]["outcome"], "not_searched");
  EXPECT_EQ(answer["fastest_by_simulation"], nullptr);
}

TEST_F(ParallelCommandTest, PrintsNumbersForLayersThatTakeNoTime) {
  ask(R"({"format": "stowage.parallel_costs", "version": 1, "devices": 1, "micro_batches": 1, "layers": [
    {"name": "a\u001b[31m\nb", "variants": [
      {"name": "x\ny", "devices": 1, "forward_seconds": 0, "backward_seconds": 0}]}]})");
  EXPECT_EQ(run(), 0);
  EXPECT_THAT(output_, HasSubstr("1 on 1 device, 1 micro-batch\n"));
  EXPECT_THAT(output_, Not(HasSubstr("nan")));
  EXPECT_THAT(output_, Not(HasSubstr("\x1b")));
  EXPECT_THAT(output_, HasSubstr("a\\u001b[31m\\u000ab"));
  EXPECT_EQ(json()["grids"].at(0)["step_seconds"], 0.0);
}

TEST_F(ParallelCommandTest, NamesWhatIsWrong) {
  command_.costs_file = folder_.file("none.json");
  expect_refused("none.json");
  ask("{");
  expect_refused("costs.json': parallel costs");
  std::string text = four_layers;
  text.replace(text.find("\"devices\": 1"), 12, "\"devices\": 2");
  ask(text);
  command_.devices = 1;
  expect_refused("layer \"block.0\" has no variant for 1 devices or fewer");
  command_.devices.reset();
  command_.trace_file = folder_.file("none/trace.json");
  expect_refused("none/trace.json");
}

}  // namespace
}  // namespace stowage
