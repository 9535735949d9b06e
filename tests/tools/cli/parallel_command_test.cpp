#include "tools/cli/parallel_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <limits>
#include <map>
#include <utility>

#include "offload/parallel/costs.h"
#include "stowage/error.h"
#include "tests/support/expect_refused.h"
#include "tests/support/temporary_folder.h"
#include "tools/answer/parallel_answer.h"

namespace stowage {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

// Four layers of 1 s forward and 2 s backward on one device, and half of that on two parts. On four devices
// with four micro-batches: four stages of one device take 12 + 3 * 3 = 21 s; two of two parts 6 + 3 * 3 = 15
// s and the exchange; one of four parts does not exist.
Json four_layers() {
  return Json::parse(
      R"({"format": "stowage.parallel_costs", "version": 1, "devices": 4, "batch": 16, "micro_batches": 4,
    "memory_bytes": 1000, "link": {"bytes_per_second": 1000},
    "layers": [{"name": "block", "repeat": 4, "variants": [
      {"name": "kept", "devices": 1, "forward_seconds": 1, "backward_seconds": 2, "bytes": 100, "bytes_in_flight": 50},
      {"name": "halved", "parts": 2, "forward_seconds": 0.5, "backward_seconds": 1, "bytes": 100, "bytes_in_flight": 25,
       "seconds_with_exchange": 1.75}]}]})");
}

struct Asked {
  int code = -1;
  std::string output;
};
Asked ask(const Json& costs, ParallelCommand command = {}) {
  const TemporaryFolder folder;
  command.costs_file = folder.make("costs.json", costs.dump());
  Asked asked;
  asked.code = run_parallel_command(command, asked.output);
  return asked;
}
Json ask_json(const Json& costs, ParallelCommand command = {}) {
  command.json = true;
  return Json::parse(ask(costs, command).output);
}

TEST(ParallelCommand, FindsTheGridThatIsBestByHand) {
  const Json answer = ask_json(four_layers());
  EXPECT_TRUE(answer["feasible"]);
  EXPECT_TRUE(answer["proven"]);
  const Json& best = answer["grids"][0];
  // 6 s of way, three more micro-batches of 3 s, and half a second of exchange that nothing hides.
  EXPECT_DOUBLE_EQ(best["step_seconds"], 6 + 3 * 3 + 0.5);
  EXPECT_EQ(best["stages"].size(), 2U);
  EXPECT_EQ(best["stages"][0]["parts"], 2);
  EXPECT_EQ(best["stages"][0]["bytes"], 2 * 100 + 2 * 2 * 25);
  EXPECT_EQ(best["stages"][1]["in_flight"], 1);
  EXPECT_DOUBLE_EQ(best["samples_per_second"], 16 / 15.5);
  EXPECT_DOUBLE_EQ(best["simulated_seconds"]["1f1b"], 15.5);
  EXPECT_TRUE(answer["best_of_all"].is_null());
  EXPECT_DOUBLE_EQ(answer["bound_seconds"], 15.5);
  // Four chunks of one layer: (2 - 1) / (2 * 4) of the work of 12 s is idle.
  EXPECT_DOUBLE_EQ(best["simulated_seconds"]["interleaved_2"], 12 + 1.5 + 0.25);
  EXPECT_TRUE(best["simulated_seconds"]["interleaved_4"].is_null());
  EXPECT_DOUBLE_EQ(best["simulated_seconds"]["gpipe"], 15.5);
  // Both stages have 200 bytes and 50 for each micro-batch in flight, of which GPipe has four.
  ParallelCommand tight;
  tight.memory = 399;
  const Json in_less = ask_json(four_layers(), tight);
  EXPECT_DOUBLE_EQ(in_less["grids"][0]["simulated_seconds"]["1f1b"], 15.5);
  EXPECT_TRUE(in_less["grids"][0]["simulated_seconds"]["gpipe"].is_null());
}

TEST(ParallelCommand, SaysItInLines) {
  const Asked asked = ask(four_layers());
  EXPECT_EQ(asked.code, 0);
  for (const char* words :
       {"best grid     2 stages x 2 parts x 1 split: 15.50 s a step, 1.032 samples/s",
        "nothing is better than this grid", "proven in", "as printed: 15.50 s a step, +0.0 %",
        "block.0 .. block.1", "2 x halved", "300 B (30.0%)",
        "The simulation's fastest: 2 stages x 2 parts x 1 split, interleaved 2, 13.75 s."}) {
    EXPECT_THAT(asked.output, HasSubstr(words));
  }
}

TEST(ParallelCommand, PutsABetterPipelineThatIsNoGridBesideIt) {
  Json costs = four_layers();
  costs["devices"] = 3;  // a grid leaves one of them idle, or is slower
  const Json answer = ask_json(costs);
  ASSERT_FALSE(answer["best_of_all"].is_null());
  EXPECT_FALSE(answer["best_of_all"]["grid"]);
  EXPECT_LT(answer["best_of_all"]["value_seconds"], answer["grids"][0]["value_seconds"]);
  EXPECT_THAT(ask(costs).output, HasSubstr("stages, not a grid: "));
}

TEST(ParallelCommand, NamesWhatWouldDoWhereNothingFits) {
  ParallelCommand command;
  command.memory = 100;
  const Asked asked = ask(four_layers(), command);
  EXPECT_EQ(asked.code, 2);
  // The first of four stages has one layer, and four micro-batches in flight.
  EXPECT_THAT(
      asked.output,
      HasSubstr(
          "no pipeline fits in 100 B of each device; the least that would do is 250 B (250 bytes), which "
          "layers block.0 to block.0 need on 1 devices"));
  const Json answer = ask_json(four_layers(), command);
  EXPECT_FALSE(answer["feasible"]);
  command.memory = Bytes{answer["least_memory"]["bytes"]};
  EXPECT_EQ(ask(four_layers(), command).code, 0);
  command.memory = *command.memory - 1;
  EXPECT_EQ(ask(four_layers(), command).code, 2);
  command.memory.reset();
  Json costs = four_layers();
  costs["use_all_devices"] = true;
  costs["layers"][0]["variants"].erase(1);
  command.devices = 5;
  EXPECT_THAT(ask(costs, command).output, HasSubstr("no pipeline uses all 5 devices"));
}

TEST(ParallelCommand, AnswersForAPipelineWhereNoGridFits) {
  Json costs = four_layers();
  costs["layers"][0]["repeat"] = 1;
  costs["layers"].push_back(costs["layers"][0]);
  costs["layers"][1]["name"] = "only on two";
  costs["layers"][0]["variants"].erase(1);
  costs["layers"][1]["variants"].erase(0);
  const Asked asked = ask(costs);
  EXPECT_EQ(asked.code, 0);
  EXPECT_THAT(asked.output, HasSubstr("best grid     none"));
  EXPECT_THAT(asked.output, HasSubstr("best of all   2 stages, not a grid"));
}

TEST(ParallelCommand, StopsWithTheBestSoFar) {
  Json costs = four_layers();
  costs["layers"][0]["repeat"] = 60;
  costs["devices"] = 64;
  costs["memory_bytes"] = 2000;
  ParallelCommand command;
  int asked_to_stop = 0, stops_at = std::numeric_limits<int>::max();
  command.stop = [&] { return ++asked_to_stop >= stops_at; };
  const std::string whole = ask(costs, command).output;
  EXPECT_THAT(whole, HasSubstr("proven"));
  ASSERT_GT(asked_to_stop, 20);
  stops_at = std::exchange(asked_to_stop, 0) / 3;
  const Asked stopped = ask(costs, command);
  EXPECT_EQ(stopped.code, 130);
  EXPECT_THAT(stopped.output, HasSubstr("stopped after"));
  EXPECT_THAT(stopped.output, HasSubstr("x 1 split: "));
  asked_to_stop = 0;
  stops_at = 1;
  EXPECT_THAT(ask(costs, command).output, HasSubstr("the search was stopped before it found a pipeline"));
  ParallelCommand limited;
  limited.most_work = std::uint64_t{ask_json(costs)["work"]} / 2;
  const Asked early = ask(costs, limited);
  EXPECT_EQ(early.code, 0);
  EXPECT_THAT(early.output, HasSubstr("ended by its limit"));
  EXPECT_EQ(early.output, ask(costs, limited).output);
  EXPECT_THAT(early.output, Not(HasSubstr("proven")));
}

TEST(ParallelCommand, WritesOneStepAsATrace) {
  const TemporaryFolder folder;
  ParallelCommand command;
  command.trace_file = folder.file("trace.json");
  ask(four_layers(), command);
  const Json trace = Json::parse(contents_of(folder.file("trace.json")));
  std::map<int, double> free;
  std::map<std::pair<int, std::string>, int> seen;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    EXPECT_GE(event["ts"], free[event["tid"]]);
    free[event["tid"]] = double{event["ts"]} + double{event["dur"]};
    ++seen[{event["tid"], event["name"]}];
  }
  ASSERT_EQ(seen.size(), 2U * 2 * 4);
  EXPECT_EQ((seen[{1, "backward 3"}]), 1);
  EXPECT_DOUBLE_EQ(free[0], 15e6);
  Json many = four_layers();
  many["batch"] = 4'000'000;
  many["micro_batches"] = 1'000'000;
  test::expect_refused([&] { ask(many, command); },
                       "--trace: 1000000 micro-batches in 2 stages are more than");
}

TEST(ParallelCommand, NamesTheFileAndTheField) {
  Json costs = four_layers();
  costs["link"]["bytes_per_second"] = 0;
  test::expect_refused([&] { ask(costs); },
                       "costs.json: parallel costs: 'link.bytes_per_second' is not a rate");
  ParallelCommand command;
  command.devices = 1;
  costs = four_layers();
  costs["layers"][0]["variants"].erase(0);
  test::expect_refused([&] { ask(costs, command); },
                       "layer \"block.0\" has no variant for 1 devices or fewer");
}

}  // namespace
}  // namespace stowage
