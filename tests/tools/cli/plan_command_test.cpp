#include "tools/cli/plan_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/machine/sample_file.h"
#include "tests/support/chain_graph.h"
#include "tests/support/expect_refused.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/trace_text.h"
#include "tools/choices/machine_choice.h"

namespace stowage {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class PlanCommandTest : public ::testing::Test {
 protected:
  PlanCommandTest() {
    folder_.make("graph.json", to_json(graph_));
    command_.graph_file = folder_.file("graph.json");
    command_.machines = machines_folder();
  }
  int run() {
    output_.clear();
    return run_plan_command(command_, output_);
  }
  // Code 2's error: nothing told, nothing written.
  void expect_refused(const std::string& words) {
    const std::size_t entries = folder_.entries();
    test::expect_refused([&] { run(); }, words);
    EXPECT_EQ(output_, "");
    EXPECT_EQ(folder_.entries(), entries);
  }
  void name_a_model() {
    command_.graph_file.clear();
    command_.model = {.gpt = "1x64", .sequence = "16", .batch = "2", .vocabulary = "96"};
  }

  TemporaryFolder folder_;
  Graph graph_ = testing::chain_graph();
  PlanCommand command_;
  std::string output_;
};

TEST_F(PlanCommandTest, AnswersYesWithTheAccountAndWritesThePlan) {
  command_.device_memory = minimum_bytes(graph_, command_.rates);
  command_.plan_file = folder_.file("plan.json");
  EXPECT_EQ(run(), 0);
  EXPECT_THAT(output_, HasSubstr("fits          yes"));
  EXPECT_THAT(output_, HasSubstr(std::to_string(*command_.device_memory)));
  EXPECT_EQ(plan_from_json(contents_of(command_.plan_file)).device_peak_bytes, *command_.device_memory);
}

TEST_F(PlanCommandTest, AnswersNoWithTheSmallestBudgetAndTheOpAndWritesNothing) {
  const Bytes least = minimum_bytes(graph_, command_.rates);
  command_.device_memory = least - 1;
  command_.plan_file = folder_.file("plan.json");
  EXPECT_EQ(run(), 2);
  EXPECT_THAT(output_, HasSubstr("the smallest budget that works is " + std::to_string(least)));
  EXPECT_EQ(folder_.entries(), 1U);
  command_.json = true;
  EXPECT_EQ(run(), 2);
  EXPECT_EQ(nlohmann::json::parse(output_)["minimum_device_bytes"], least);
}

TEST_F(PlanCommandTest, SaysHowManyGradientGroupsThereAre) {
  name_a_model();
  command_.model.micro_batches = command_.model.gradient_groups = "2";
  EXPECT_EQ(run(), 0);
  EXPECT_THAT(output_, HasSubstr("2 micro-batches in 2 gradient groups, "));
  command_.json = true;
  EXPECT_EQ(run(), 0);
  EXPECT_EQ(nlohmann::json::parse(output_)["gradient_groups"], 2);
  EXPECT_EQ(nlohmann::json::parse(output_)["model"]["gradient_groups"], 2);
}

TEST_F(PlanCommandTest, SaysWhichOrderOfMicroBatchesItIs) {
  name_a_model();
  EXPECT_EQ(run(), 0);
  EXPECT_THAT(output_, ::testing::Not(HasSubstr("micro-batches")));
  command_.model.micro_batches = "2";
  EXPECT_EQ(run(), 0);
  EXPECT_THAT(
      output_,
      ::testing::AnyOf(HasSubstr("2 micro-batches, each half-block for all of them (layer_major)"),
                       HasSubstr("2 micro-batches, one after another, forward and backward (batch_major)")));
  command_.json = true;
  command_.plan_file = folder_.file("plan.json");
  EXPECT_EQ(run(), 0);
  const auto json = nlohmann::json::parse(output_);
  EXPECT_EQ(json["micro_batches"], 2);
  EXPECT_EQ(json["model"]["micro_batches"], 2);
  EXPECT_EQ(json["gradient_groups"], 1);
  EXPECT_EQ(json["order"], to_string(plan_from_json(contents_of(command_.plan_file)).order));
  command_.plan_file.clear();
  command_.device_memory = 1;
  EXPECT_EQ(run(), 2);
  EXPECT_TRUE(nlohmann::json::parse(output_)["order"].is_null());
}

TEST_F(PlanCommandTest, WritesAPageOfThePlanBesideWhatOtherBudgetsGive) {
  command_.report_file = folder_.file("plan.html");
  command_.device_memory = minimum_bytes(graph_, command_.rates) - 1;
  EXPECT_EQ(run(), 2);
  EXPECT_EQ(folder_.entries(), 1U);
  command_.device_memory = need_bytes(graph_, command_.rates);
  EXPECT_EQ(run(), 0);
  const std::string page = contents_of(command_.report_file);
  EXPECT_THAT(page, HasSubstr("<!DOCTYPE html>"));
  EXPECT_THAT(page, HasSubstr(std::to_string(minimum_bytes(graph_, command_.rates))));  // of the curve
  command_.sweep = "memory";
  command_.device_memory.reset();
  expect_refused("--report: --sweep has several plans");
}

TEST_F(PlanCommandTest, PlansATraceByItsMeasuredTimes) {
  const std::string example = test::trace_example(STOWAGE_ROOT);
  command_.graph_file = folder_.make("step.jsonl", example);
  EXPECT_EQ(run(), 0);
  EXPECT_THAT(output_, HasSubstr("11 ops, 524,288 parameters, f32"));
  const auto step = [&](const std::string& trace) {
    command_.graph_file = folder_.make("step.jsonl", trace);
    command_.json = true;
    EXPECT_EQ(run(), 0);
    return nlohmann::json::parse(output_)["step_seconds"].get<double>();
  };
  std::string slower = example;
  slower.replace(slower.find("3.1e-5"), 6, "2.5");
  EXPECT_NEAR(step(slower) - step(example), 2.5, 0.01);
}

TEST_F(PlanCommandTest, RefusesATraceNamingTheFileAndTheLine) {
  std::string example = test::trace_example(STOWAGE_ROOT);
  example.replace(example.find("3.1e-5"), 6, "-1");
  command_.graph_file = folder_.make("step.jsonl", example);
  expect_refused("step.jsonl': trace line 7: 'seconds' is not a number from 0");
}

TEST_F(PlanCommandTest, PlansAModelWithoutAFile) {
  name_a_model();
  EXPECT_EQ(run(), 0);
  EXPECT_THAT(output_, HasSubstr("gpt, 1 layers, width 64, heads 1, vocabulary 96"));
  EXPECT_THAT(output_, HasSubstr("parameters, f32\n"));
  command_.model.bert = "1x128";
  command_.model.gpt.clear();
  command_.json = true;
  EXPECT_EQ(run(), 0);
  const auto json = nlohmann::json::parse(output_);
  EXPECT_EQ(json["model"]["family"], "bert");
  EXPECT_EQ(json["model"]["heads"], 2);
  EXPECT_EQ(json["feasible"], true);
  EXPECT_FALSE(json["model"].contains("keep_tokens"));
}

TEST_F(PlanCommandTest, PlansABertThatKeepsAPartOfTheTokens) {
  name_a_model();
  command_.model.gpt.clear();
  command_.model.bert = "1x128";
  command_.model.sequence = "128";
  command_.json = true;
  EXPECT_EQ(run(), 0);
  const auto whole = nlohmann::json::parse(output_);
  command_.model.keep_tokens = "0.5";
  EXPECT_EQ(run(), 0);
  const auto half = nlohmann::json::parse(output_);
  EXPECT_EQ(half["model"]["keep_tokens"], 0.5);
  EXPECT_LT(half["need_bytes"], whole["need_bytes"]);
  EXPECT_EQ(half["parameters"], whole["parameters"]);
  command_.json = false;
  EXPECT_EQ(run(), 0);
  EXPECT_THAT(output_,
              HasSubstr("bert, 1 layers, width 128, heads 2, vocabulary 96, 0.5 of the tokens in MLPs"));
}

TEST_F(PlanCommandTest, TakesMemoryRatesAndTypeFromANamedMachine) {
  name_a_model();
  command_.machine = "rtx4090";
  command_.json = true;
  EXPECT_EQ(run(), 0);
  auto json = nlohmann::json::parse(output_);
  EXPECT_EQ(json["budget_bytes"], 24564_MiB);
  EXPECT_EQ(json["overhead_bytes"], 600_MiB);
  EXPECT_EQ(json["model"]["type"], "bf16");
  EXPECT_EQ(json["machine"], "NVIDIA GeForce RTX 4090 on its usual host, not measured");
  command_.device_memory = 1_GiB;
  command_.model.type = "f32";
  EXPECT_EQ(run(), 0);
  json = nlohmann::json::parse(output_);
  EXPECT_EQ(json["budget_bytes"], 1_GiB);
  EXPECT_EQ(json["model"]["type"], "f32");
  command_.device_memory = unlimited;
  EXPECT_EQ(run(), 0);
  EXPECT_TRUE(nlohmann::json::parse(output_)["budget_bytes"].is_null());
  command_.machine = "v100-16gb";
  command_.model.type.clear();
  EXPECT_EQ(run(), 0);
  EXPECT_EQ(nlohmann::json::parse(output_)["model"]["type"], "f32");
  command_.model.type = "bf16";
  expect_refused("has no rate for bf16, only for f32");
}

TEST_F(PlanCommandTest, TakesAMachineFile) {
  command_.machine = folder_.make("machine.json", to_json(test::sample_file()));
  EXPECT_EQ(run(), 0);
  EXPECT_THAT(output_, HasSubstr("machine       8 x Card \"7\" on node, measured 2026-11-21T13:50:00Z\n"));
  EXPECT_THAT(output_, HasSubstr("budget        140.00 GiB"));
}

// 8 devices, 4 at each memory of 64 GiB.
TEST_F(PlanCommandTest, TakesTheHostBudgetFromTheMachineFile) {
  name_a_model();
  command_.options.policy = Policy::none;
  command_.machine = folder_.make("machine.json", to_json(test::sample_file()));
  const char* const source =
      ", 15/16 of each host memory in the machine's file; --host-memory sets another\n";
  const auto expect_budget = [&](const char* bytes) {
    command_.json = false;
    EXPECT_EQ(run(), 0);
    EXPECT_THAT(output_, HasSubstr(std::string("host budget   ") + bytes + source));
    command_.json = true;
    EXPECT_EQ(run(), 0);
    EXPECT_EQ(nlohmann::json::parse(output_)["host_budget_from_machine"], true);
  };
  expect_budget("60.00 GiB (64424509440 bytes)");
  command_.model.devices = "2";
  expect_budget("120.00 GiB (128849018880 bytes)");
  EXPECT_EQ(nlohmann::json::parse(output_)["host_budget_bytes"], 120_GiB);
  for (const Bytes given : {1_GiB, unlimited}) {
    command_.host_memory = given;
    command_.json = false;
    EXPECT_EQ(run(), 0);
    EXPECT_THAT(output_, ::testing::Not(HasSubstr("machine's file")));
    command_.json = true;
    EXPECT_EQ(run(), 0);
    const auto json = nlohmann::json::parse(output_);
    EXPECT_EQ(json["host_budget_from_machine"], false);
    EXPECT_EQ(json["host_budget_bytes"], given == unlimited ? nlohmann::json() : nlohmann::json(given));
  }
}

TEST_F(PlanCommandTest, SweepsWithinTheHostBudgetOfTheMachineFile) {
  name_a_model();
  command_.machine = folder_.make("machine.json", to_json(test::sample_file()));
  command_.sweep = "memory=2";
  EXPECT_EQ(run(), 0);
  EXPECT_THAT(output_,
              HasSubstr("\nhost budget   60.00 GiB, 15/16 of each host memory in the machine's file; "));
  command_.sweep = "devices=1,2";
  EXPECT_EQ(run(), 0);
  EXPECT_THAT(output_, HasSubstr("\nhost budget   60.00 GiB to 120.00 GiB, 15/16 of each "));
  command_.host_memory = 1_GiB;
  EXPECT_EQ(run(), 0);
  EXPECT_THAT(output_, ::testing::Not(HasSubstr("host budget")));
}

TEST_F(PlanCommandTest, NothingFitsAHostThatHasLessThanTheStepNeeds) {
  MachineFile file = test::sample_file();
  file.host_memory_bytes = 16;
  name_a_model();
  command_.machine = folder_.make("machine.json", to_json(file));
  command_.json = true;
  EXPECT_EQ(run(), 2);
  EXPECT_EQ(nlohmann::json::parse(output_)["lacks"], "host");
  EXPECT_EQ(nlohmann::json::parse(output_)["host_budget_bytes"], 15);
  command_.model = {.sequence = "8", .batch = "1", .vocabulary = "32"};
  command_.max_model = true;
  command_.options.policy = Policy::none;
  EXPECT_EQ(run(), 2);
  EXPECT_EQ(nlohmann::json::parse(output_)["lacks"], "host");
}

TEST_F(PlanCommandTest, ListsMachinesWithoutAGraph) {
  command_.graph_file.clear();
  command_.machine = "list";
  EXPECT_EQ(run(), 0);
  EXPECT_EQ(output_, list_machines(machines_folder()));
}

TEST_F(PlanCommandTest, SweepsMemory) {
  command_.sweep = "memory=3";
  command_.json = true;
  std::vector<std::string> told;
  command_.progress = [&](const std::string& what) { told.push_back(what); };
  EXPECT_EQ(run(), 0);
  const auto json = nlohmann::json::parse(output_);
  ASSERT_EQ(json.size(), 3U);
  EXPECT_EQ(json[0]["budget_bytes"], minimum_bytes(graph_, command_.rates));
  EXPECT_EQ(json[2]["budget_bytes"], need_bytes(graph_, command_.rates));
  EXPECT_THAT(told, ElementsAre("budget 1 of 3", "budget 2 of 3", "budget 3 of 3"));
}

TEST_F(PlanCommandTest, SweepsBatchesAndSaysTwoWhereNoneFits) {
  name_a_model();
  command_.model.batch.clear();
  command_.sweep = "batch=1,2";
  EXPECT_EQ(run(), 0);
  EXPECT_THAT(output_, HasSubstr("batch "));
  command_.device_memory = 1000;
  EXPECT_EQ(run(), 2);
  EXPECT_THAT(output_, HasSubstr("\n2             does not fit: "));
}

TEST_F(PlanCommandTest, PlansForSeveralDevices) {
  name_a_model();
  command_.model.devices = "2";
  command_.machine = "2x-rtx4090";
  command_.host_memory = 64_MiB;
  EXPECT_EQ(run(), 0);
  EXPECT_THAT(output_, HasSubstr("devices       2 that train it together"));
  command_.json = true;
  command_.plan_file = folder_.file("plan.json");
  command_.report_file = folder_.file("plan.html");
  EXPECT_EQ(run(), 0);
  const auto json = nlohmann::json::parse(output_);
  EXPECT_EQ(json["devices"], 2);
  EXPECT_EQ(json["gradient_groups"], 1) << "of each";
  EXPECT_EQ(json["model"]["gradient_groups"], 2);
  EXPECT_EQ(json["model"]["micro_batches"], 2);
  EXPECT_EQ(json["host_budget_bytes"], 64_MiB);
  EXPECT_EQ(json["host_bytes"], 2 * plan_from_json(contents_of(command_.plan_file)).host_bytes);
  EXPECT_THAT(contents_of(command_.report_file), HasSubstr("from peers per step"));
  EXPECT_THAT(contents_of(command_.report_file), HasSubstr("of 32.00 MiB"));
}

// What the trainers keep of each card for its peers, the planner does not promise.
TEST_F(PlanCommandTest, CountsWhatCardsTakeToReachEachOther) {
  name_a_model();
  command_.machine = "2x-rtx4090";
  command_.sweep = "devices";
  command_.json = true;
  EXPECT_EQ(run(), 0);
  const auto rows = nlohmann::json::parse(output_);
  EXPECT_EQ(rows[0]["overhead_for_peers_bytes"], 0);
  EXPECT_EQ(rows[1]["overhead_for_peers_bytes"], 512_MiB);
  EXPECT_EQ(rows[1]["overhead_bytes"], rows[0]["overhead_bytes"].get<Bytes>() + 512_MiB);
  command_.sweep.clear();
  command_.json = false;
  command_.model.devices = "2";
  const Bytes least = rows[1]["minimum_device_bytes"];
  EXPECT_GT(least, 512_MiB);
  command_.device_memory = least;
  EXPECT_EQ(run(), 0);
  EXPECT_THAT(output_, HasSubstr(" for context and libraries, 512.00 MiB of it to reach the others, which"));
  command_.device_memory = least - 1;
  EXPECT_EQ(run(), 2);
}

TEST_F(PlanCommandTest, PlansForSeveralDevicesByEveryPolicy) {
  name_a_model();
  command_.model.devices = "2";
  command_.machine = "2x-rtx4090";
  command_.json = true;
  for (const Policy policy : every_policy) {
    command_.options.policy = policy;
    EXPECT_EQ(run(), 0) << to_string(policy);
    EXPECT_GT(nlohmann::json::parse(output_)["peer_bytes"], 0) << to_string(policy);
  }
}

TEST_F(PlanCommandTest, SeveralDevicesNeedAMachineThatHasThem) {
  name_a_model();
  command_.model.devices = "2";
  expect_refused("--devices 2: how they reach each other is not known; give --machine");
  command_.machine = "rtx4090";
  expect_refused("2 devices of the machine of NVIDIA GeForce RTX 4090: its file has no peer link");
  command_.machine = "2x-rtx4090";
  command_.model.devices = "4";
  command_.model.batch = "4";
  expect_refused("it has 2; give at most so many");
  command_.sweep = "devices";
  expect_refused("--devices: --sweep devices takes their numbers itself");
}

TEST_F(PlanCommandTest, SweepsDevices) {
  name_a_model();
  command_.machine = "2x-rtx4090";
  command_.sweep = "devices";
  command_.json = true;
  EXPECT_EQ(run(), 0);
  const auto json = nlohmann::json::parse(output_);
  ASSERT_EQ(json.size(), 2U);
  EXPECT_EQ(json[0]["devices"], 1);
  EXPECT_EQ(json[1]["devices"], 2);
  EXPECT_GT(json[1]["peer_bytes"], 0);
}

// Of two devices each has half of the host's memory, and their need is less than that of one.
TEST_F(PlanCommandTest, FindsTheLargestModelOfSeveralDevices) {
  const GptSize second = gpt_ladder()[1];
  command_.graph_file.clear();
  command_.model = {.sequence = "8", .batch = "2", .vocabulary = "32", .devices = "2"};
  command_.max_model = true;
  command_.machine = "2x-rtx4090";
  command_.options.policy = Policy::none;
  const Graph graph = build(model_spec(second, command_.model, DataType::bf16));
  command_.device_memory = 600_MiB + 512_MiB + need_bytes(graph, Machine{});
  EXPECT_EQ(run(), 0);
  EXPECT_THAT(output_, HasSubstr("gpt, 13 layers, width 768, heads 12, vocabulary 32"));
  EXPECT_THAT(output_, HasSubstr("devices       2 that"));
}

TEST_F(PlanCommandTest, FindsTheLargestModel) {
  const GptSize second = gpt_ladder()[1];
  const ModelWords words{.sequence = "8", .batch = "1", .vocabulary = "32"};
  command_.graph_file.clear();
  command_.model = words;
  command_.max_model = true;
  command_.options.policy = Policy::none;
  command_.device_memory = need_bytes(build(model_spec(second, words, DataType::f32)), command_.rates);
  command_.plan_file = folder_.file("plan.json");
  EXPECT_EQ(run(), 0);
  EXPECT_EQ(
      output_.find("largest       no plan was found for the next size of the ladder\nfits          yes\n"),
      0U);
  EXPECT_THAT(output_, HasSubstr("gpt, 13 layers, width 768, heads 12, vocabulary 32"));
  EXPECT_EQ(plan_from_json(contents_of(command_.plan_file)).device_peak_bytes, *command_.device_memory);
  command_.plan_file.clear();
  command_.device_memory = 1000;
  EXPECT_EQ(run(), 2);
  EXPECT_THAT(output_, HasSubstr("largest       none: not even the smallest size fits\nfits          no: "));
}

TEST_F(PlanCommandTest, ComparesTwoWrittenPlans) {
  command_.options.policy = Policy::none;
  command_.plan_file = folder_.file("a.json");
  EXPECT_EQ(run(), 0);
  command_.options.policy = Policy::automatic;
  command_.plan_file = folder_.file("b.json");
  command_.device_memory = minimum_bytes(graph_, command_.rates);
  EXPECT_EQ(run(), 0);
  PlanCommand compare;
  compare.compare = {folder_.file("a.json"), folder_.file("b.json")};
  std::string output;
  EXPECT_EQ(run_plan_command(compare, output), 0);
  EXPECT_THAT(output, HasSubstr("resident in A, host in B"));
  compare.json = true;
  output.clear();
  EXPECT_EQ(run_plan_command(compare, output), 0);
  EXPECT_EQ(nlohmann::json::parse(output)["b"]["device_peak_bytes"], *command_.device_memory);

  compare.compare[1] = command_.graph_file;
  test::expect_refused([&] { run_plan_command(compare, output); }, "'" + command_.graph_file + "': ");
  compare.compare[1] = folder_.file("none.json");
  test::expect_refused([&] { run_plan_command(compare, output); }, "none.json");
  compare.compare[1] = folder_.file("b.json");
  compare.sweep = "memory";
  test::expect_refused([&] { run_plan_command(compare, output); }, "--compare plans nothing");
}

TEST_F(PlanCommandTest, ABadFileIsNamed) {
  command_.graph_file = "/nowhere/graph.json";
  expect_refused("/nowhere/graph.json");
  command_.graph_file = folder_.make("bad.json", "{}");
  expect_refused("bad.json': ");
  command_.graph_file = folder_.file("graph.json");
  command_.plan_file = folder_.file("none/plan.json");
  expect_refused("none/plan.json");
  command_.device_memory = 1;  // refused before it is known that there is nothing to write
  expect_refused("none/plan.json");
}

TEST_F(PlanCommandTest, OneThingIsPlanned) {
  command_.model.gpt = "1x64";
  expect_refused("give one of them");
  command_.model.gpt.clear();
  command_.max_model = true;
  expect_refused("give one of them");
  command_.max_model = false;
  command_.graph_file.clear();
  expect_refused("nothing to plan: give a graph or trace file, --model NAME, --gpt LAYERSxWIDTH");
  command_.model.batch = "2";
  expect_refused("nothing to plan");
  command_.graph_file = folder_.file("graph.json");
  expect_refused("--batch 2: a saved graph has its own");
}

TEST_F(PlanCommandTest, AnswersForAllCodesOfActivationsSideBySide) {
  command_.graph_file.clear();
  command_.model = {.gpt = "2x64", .sequence = "256", .batch = "2", .vocabulary = "96"};
  command_.model.code_activations = "auto";
  command_.json = true;
  EXPECT_EQ(run(), 0);
  const auto rows = nlohmann::json::parse(output_);
  ASSERT_EQ(rows.size(), 3U);
  for (const auto& row : rows) {
    command_.model.code_activations = row.at("code_activations");
    EXPECT_EQ(run(), 0);
    const auto alone = nlohmann::json::parse(output_);
    for (const char* name : {"need_bytes", "minimum_device_bytes", "step_seconds"})
      EXPECT_EQ(alone.at(name), row.at(name)) << name;
    EXPECT_EQ(alone.at("model").value("code_activations", "off"), row.at("code_activations"));
  }
  EXPECT_LT(rows[2].at("need_bytes"), rows[1].at("need_bytes"));
  EXPECT_LT(rows[1].at("need_bytes"), rows[0].at("need_bytes"));
  command_.model.code_activations = "auto";
  command_.json = false;
  EXPECT_EQ(run(), 0);
  EXPECT_THAT(output_, ::testing::MatchesRegex("codes .*\noff .*\n8 .*\n4 .*\n"));
}

TEST_F(PlanCommandTest, AllCodesAreOneQuestion) {
  name_a_model();
  command_.model.code_activations = "auto";
  command_.sweep = "memory";
  expect_refused("--code-activations auto and --sweep are two questions");
  command_.sweep.clear();
  command_.model.micro_batches = "auto";
  expect_refused("--code-activations auto and --micro-batches auto are two questions");
  command_.model.micro_batches.clear();
  command_.report_file = folder_.file("report.html");
  expect_refused("--report: --code-activations auto has several plans");
  command_.report_file.clear();
  command_.model = {.code_activations = "auto"};
  command_.graph_file = folder_.file("graph.json");
  expect_refused("--code-activations auto: a saved graph has its own");
}

TEST_F(PlanCommandTest, OptionsThatContradictAreTold) {
  command_.sweep = "memory";
  command_.device_memory = 1_GiB;
  expect_refused("--device-memory: --sweep memory takes the budgets itself");
  command_.device_memory.reset();
  command_.options.policy = Policy::none;
  expect_refused("--policy none: it has one plan");
  command_.options.policy = Policy::automatic;
  command_.plan_file = folder_.file("plan.json");
  expect_refused("--plan-json: --sweep has several plans");
  command_.plan_file.clear();
  command_.sweep = "batch";
  expect_refused("--sweep batch: a saved graph has one batch size");
  name_a_model();
  expect_refused("--batch: --sweep batch takes the batches itself");
  command_.model.batch.clear();
  expect_refused("--sweep batch: every batch fits an unlimited device");
  command_.model.gpt.clear();
  command_.max_model = true;
  expect_refused("--sweep and --max-model are two questions");
  command_.sweep.clear();
  expect_refused("--max-model: every model fits an unlimited device");
  command_.machine = "h300";
  expect_refused("--machine: there is no machine \"h300\"; give 2x-rtx4090, 4x-rtx4090");
}

}  // namespace
}  // namespace stowage
