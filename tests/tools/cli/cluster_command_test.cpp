// `stowage parallel` for a model on a cluster.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "stowage/error.h"
#include "tests/support/draws.h"
#include "tests/support/expect_refused.h"
#include "tests/support/temporary_folder.h"
#include "tools/choices/machine_choice.h"
#include "tools/cli/cluster_answer.h"
#include "tools/cli/parallel_command.h"
#include "tools/cli/plan_command.h"

namespace stowage {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

class ClusterCommandTest : public ::testing::Test {
 protected:
  ClusterCommandTest() {
    command_.machines = machines_folder();
    command_.machine = "4x-rtx4090";
    command_.model = {.gpt = "2x64", .heads = "4", .sequence = "16", .batch = "8", .vocabulary = "96"};
  }
  int run() {
    output_.clear();
    return run_parallel_command(command_, output_);
  }
  Json json() {
    command_.json = true;
    run();
    command_.json = false;
    return Json::parse(output_);
  }
  void expect_refused(const std::string& words) {
    test::expect_refused([&] { run(); }, words);
    EXPECT_EQ(output_, "");
  }
  TemporaryFolder folder_;
  ParallelCommand command_;
  std::string output_;
};

TEST_F(ClusterCommandTest, AnswersInLinesAndTables) {
  EXPECT_EQ(run(), 0);
  for (const char* words :
       {"model         gpt, 2 layers, width 64, heads 4, vocabulary 96, bf16\n",
        "cluster       1 node of 4 x NVIDIA GeForce RTX 4090\n", "best grid     ", "predicted by plans",
        "balance", "no limit of host memory", "half-blocks", "embedding", "next best", "why it loses",
        "others' rules, same costs", "data parallel alone", "GPipe, equal numbers",
        "Megatron-LM: split within a node"})
    EXPECT_THAT(output_, HasSubstr(words));
}

// Codes are those of a device's own part, whose elements are no multiple of a group's.
TEST_F(ClusterCommandTest, CodesActivationsOfSplitProducts) {
  command_.model = {.gpt = "2x160", .heads = "4", .sequence = "500", .batch = "2", .vocabulary = "96"};
  command_.highest = Rung::bounds;
  const double exact = json()["grids"][0]["step_seconds"];
  command_.model.code_activations = "4";
  EXPECT_NE(json()["grids"][0]["step_seconds"].get<double>(), exact);
  command_.model.code_activations = "auto";
  expect_refused("--code-activations auto: `stowage plan` alone answers for all codes");
}

// The same planner by the same call: what `stowage plan --devices` says.
TEST_F(ClusterCommandTest, DataParallelAloneIsWhatPlanSays) {
  command_.plans.device_memory = 2'000'000 + (Bytes{1} << 30) + (Bytes{128} << 20);
  const Json rule = json()["others"][0];
  PlanCommand plan;
  plan.machines = machines_folder();
  plan.machine = command_.machine;
  plan.model = command_.model;
  plan.model.devices = "4";
  plan.device_memory = command_.plans.device_memory;
  plan.json = true;
  std::string text;
  ASSERT_EQ(run_plan_command(plan, text), 0) << text;
  EXPECT_DOUBLE_EQ(rule["grid"]["step_seconds"].get<double>(),
                   Json::parse(text)["step_seconds"].get<double>());
  EXPECT_EQ(rule["grid"]["plans"][0]["peak_bytes"], Json::parse(text)["peak_bytes"]);
}

// By plans on five clusters and models, in budgets of which some have room with offload alone.
TEST_F(ClusterCommandTest, IsNeverSlowerThanOthersRules) {
  struct Asked {
    const char *machine, *gpt, *heads;
    int nodes;
  };
  std::vector<Asked> asked{{"4x-rtx4090", "2x64", "1", 1},
                           {"2x-rtx4090", "3x128", "2", 1},
                           {"4x-rtx4090", "3x128", "4", 1},
                           {"2x-rtx4090", "2x64", "2", 2},
                           {"8x-h200", "1x128", "2", 1}};
  if (testing::fewer_draws) asked.resize(1);
  for (const Asked& of : asked)
    for (const Bytes above : {Bytes{700'000}, Bytes{1'500'000}, Bytes{1} << 30}) {
      SCOPED_TRACE(std::string(of.machine) + " " + of.gpt + " " + std::to_string(above));
      command_.machine = of.machine;
      command_.nodes = of.nodes;
      command_.model.gpt = of.gpt;
      command_.model.heads = of.heads;
      command_.plans.device_memory = above + Bytes{1166016512};  // context and libraries
      const Json answer = json();
      if (!answer["feasible"]) {
        for (const Json& rule : answer["others"]) EXPECT_FALSE(rule["fits"]);
        continue;
      }
      const double best = answer["grids"][0]["step_seconds"];
      EXPECT_EQ(answer["grids"][0]["rung"], "plans");
      for (const Json& rule : answer["others"])
        if (rule["fits"]) {
          EXPECT_GE(rule["grid"]["step_seconds"].get<double>(), best) << rule;
        }
      EXPECT_LE(answer["bound_seconds"].get<double>(), best);
      for (const Json& grid : answer["grids"]) {
        EXPECT_EQ(grid["cuts"].size(),
                  grid["stages"].get<std::size_t>() * grid["ranges"].get<std::size_t>() + 1);
        for (const Json& plan : grid["plans"]) {
          EXPECT_LE(plan["peak_bytes"].get<Bytes>(), *command_.plans.device_memory);
          EXPECT_LE(plan["lower_bound_seconds"].get<double>(), plan["seconds"].get<double>() * (1 + 1e-9));
        }
      }
    }
}

// By sums alone, on clusters and models of all sizes.
TEST_F(ClusterCommandTest, IsNeverSlowerBySums) {
  command_.highest = Rung::sums;
  std::mt19937_64 random(1);
  const auto draw = [&](int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(random);
  };
  for (int instance = 0; instance < testing::draws(200, 6); ++instance) {
    SCOPED_TRACE(instance);
    command_.machine = std::vector{"2x-rtx4090", "4x-rtx4090", "8x-a100-80gb", "8x-h200"}[draw(0, 3)];
    command_.nodes = 1 << draw(0, 4);
    command_.model.gpt = std::to_string(draw(1, 24)) + "x" + std::to_string(64 * draw(1, 32));
    command_.model.sequence = std::to_string(128 << draw(0, 3));
    command_.model.batch = std::to_string(1 << draw(0, 6));
    command_.plans.device_memory = (Bytes{5} << 28) + (Bytes{1} << draw(26, 36));
    command_.plans.host_memory = Bytes{1} << draw(30, 42);
    const Json answer = json();
    for (const Json& rule : answer["others"])
      if (rule["fits"]) {
        ASSERT_TRUE(answer["feasible"]);
        EXPECT_GE(rule["grid"]["step_seconds"].get<double>() * (1 + 1e-12),
                  answer["grids"][0]["step_seconds"].get<double>());
      }
  }
}

// Each layer more costs the same, whether all of them are built or the one in the middle stands for many. The
// parts of the norm, some bytes for each parameter, are those of the few.
TEST_F(ClusterCommandTest, SumsOfManyLayersAreThoseOfAFewAndTheirMiddle) {
  const auto sums = [](int layers, const GridShape& shape) {
    ClusterQuestion question;
    const ModelWords words{.gpt = std::to_string(layers) + "x64",
                           .heads = "4",
                           .sequence = "16",
                           .batch = "8",
                           .vocabulary = "96"};
    question.model = *model_spec(words, DataType::bf16);
    question.machine = read_machine("4x-rtx4090", machines_folder());
    question.devices_per_node = 4;
    ModelCosts costs(question);
    const PrefixSums of = costs.sums(shape);
    EXPECT_EQ(of.half_blocks(), static_cast<std::uint32_t>(2 * layers + 2));
    for (std::uint32_t cut = 2; cut < of.half_blocks(); ++cut)
      EXPECT_EQ(of.sent_bytes(cut), of.sent_bytes(1));
    const HalfBlockSums all = of.of(0, of.half_blocks());
    return std::vector<double>{all.forward_seconds,     all.backward_seconds, all.peer_seconds,
                               all.host_update_seconds, all.weight_bytes,     all.gradient_bytes,
                               all.state_bytes};
  };
  for (const GridShape& shape :
       {GridShape{1, 1, 1, 4, 2}, GridShape{1, 4, 1, 2, 1}, GridShape{2, 1, 2, 1, 8}}) {
    const auto two = sums(2, shape), three = sums(3, shape), nine = sums(9, shape);
    for (std::size_t i = 0; i < two.size(); ++i)
      EXPECT_NEAR(nine[i], two[i] + 7 * (three[i] - two[i]), 1e-6 * nine[i]) << i;
  }
}

ClusterQuestion small_question(const ModelFamily& family, std::int64_t layers) {
  ClusterQuestion question;
  question.model = *model_spec(
      {.gpt = "1x64", .heads = "4", .sequence = "16", .batch = "8", .vocabulary = "96"}, DataType::bf16);
  question.model.family = &family;
  question.model.config.layers = layers;
  question.machine = read_machine("4x-rtx4090", machines_folder());
  question.devices_per_node = 4;
  return question;
}

TEST_F(ClusterCommandTest, SumsOfEachHalfBlockAreThoseOfTheWholeModel) {
  std::vector<ClusterQuestion> questions;
  for (const ModelFamily* family : {&gpt_family, &bert_family, &llama_family})
    questions.push_back(small_question(*family, 6));
  for (const std::vector<std::int64_t>& windows : {std::vector<std::int64_t>(6, 8), {0, 8, 0, 8, 0, 8}}) {
    questions.push_back(small_question(llama_family, 6));
    questions.back().model.config.windows = windows;
  }
  for (const ClusterQuestion& question : questions) {
    ModelCosts costs(question);
    const GridShape shape{1, 1, 1, 8, 1};
    Graph graph = build(question.model);
    set_op_seconds(question.machine, DataType::bf16, *costs.room(shape).machine, graph);
    const std::vector<HalfBlockSums> whole = half_block_sums(graph, *costs.room(shape).machine);
    const PrefixSums few = costs.sums(shape);
    ASSERT_EQ(few.half_blocks(), whole.size());
    for (std::uint32_t block = 0; block < whole.size(); ++block) {
      SCOPED_TRACE(costs.name_of(block));
      const HalfBlockSums of = few.of(block, block + 1);
      EXPECT_NEAR(of.forward_seconds, whole[block].forward_seconds, 1e-12);
      EXPECT_NEAR(of.backward_seconds, whole[block].backward_seconds, 1e-12);
      EXPECT_NEAR(of.host_update_seconds, whole[block].host_update_seconds, 1e-12);
      EXPECT_NEAR(of.weight_bytes, whole[block].weight_bytes, 0.1);
      EXPECT_NEAR(of.state_bytes, whole[block].state_bytes, 0.1);
      EXPECT_EQ(of.sent_bytes, whole[block].sent_bytes);
    }
  }
}

// Of several ranges the last stage sends to the first one, which may be in another node. Here the last stages
// of a grid in one node and of one in two have half-blocks alike.
TEST_F(ClusterCommandTest, StagesWhoseLinksDifferHavePlansOfTheirOwn) {
  ClusterQuestion question = small_question(gpt_family, 7);
  question.model.config.batch = 32;
  question.nodes = 4;
  question.network = {.device_bytes_per_second = 1e6, .node_bytes_per_second = 1e6};
  const GridShape in_one{4, 1, 1, 1, 32, GridOrder::one_f_one_b, 2};
  const GridShape in_two{8, 1, 1, 1, 32, GridOrder::one_f_one_b, 2};
  const std::vector<HalfBlocks> last{{7, 8}, {15, 16}}, as_last{{11, 12}, {15, 16}};
  ModelCosts alone(question), both(question);
  const double slow = alone.bound_seconds(in_two, 7, last);
  const double fast = both.bound_seconds(in_one, 3, as_last);
  EXPECT_EQ(both.bound_seconds(in_two, 7, last), slow);
  EXPECT_GT(slow, 2 * fast);
}

TEST_F(ClusterCommandTest, TakesAClustersFile) {
  command_.machine = "";
  command_.cluster_file =
      folder_.make("cluster.json", R"({"format": "stowage.cluster", "version": 1, "nodes": 2,
    "machine": "2x-rtx4090", "network": {"device_bytes_per_second": 1.25e9}, "watts_per_device": 450,
    "watts_per_node": 300})");
  command_.highest = Rung::sums;
  const Json answer = json();
  EXPECT_EQ(answer["nodes"], 2);
  EXPECT_EQ(answer["devices_per_node"], 2);
  const Json& best = answer["grids"][0];
  const int devices = best["stages"].get<int>() * best["parts"].get<int>();
  EXPECT_DOUBLE_EQ(
      answer["joules_per_token"].get<double>(),
      (450.0 * devices + 300 * ((devices + 1) / 2)) * best["step_seconds"].get<double>() / (8 * 16));
  EXPECT_EQ(run(), 0);
  EXPECT_THAT(output_, HasSubstr("joules a token"));
}

// A row for each stage, and in it a forward and a backward of each micro-batch.
TEST_F(ClusterCommandTest, WritesAStepOfTheBestGrid) {
  command_.trace_file = folder_.file("step.json");
  const Json best = json()["grids"][0];
  const Json trace = Json::parse(contents_of(command_.trace_file));
  std::int64_t rows = 0, passes = 0;
  for (const Json& event : trace["traceEvents"]) {
    rows += event["ph"] == "M" ? 1 : 0;
    const std::string name = event["name"];
    if (name.starts_with("forward ") || name.starts_with("backward ")) {
      ++passes;
      EXPECT_GT(event["dur"].get<double>(), 0);
    }
  }
  EXPECT_EQ(rows, best["stages"].get<std::int64_t>());
  EXPECT_EQ(passes, 2 * best["stages"].get<std::int64_t>() * best["ranges"].get<std::int64_t>() *
                        best["micro_batches"].get<std::int64_t>());
}

// A grid of two stages of two ranges: rows of stages, spans of ranges, one line for each range in the text.
TEST(ClusterAnswerTest, SaysWhichRangesAStageHas) {
  ClusterQuestion question;
  question.model = *model_spec({.gpt = "1x64", .heads = "4", .sequence = "16", .batch = "4"}, DataType::bf16);
  ClusterAnswer answer;
  answer.half_blocks = {"embedding", "h.0.attention", "h.0.mlp", "head"};
  answer.tokens = 64;
  Grid grid;
  grid.shape = {2, 1, 1, 1, 4, GridOrder::one_f_one_b, 2};
  grid.cuts = {0, 1, 2, 3, 4};
  grid.seconds = {9, 10};
  grid.ways = {1, 1};
  grid.sends = {0.25};
  grid.step_seconds = 13;
  answer.search.grids = {grid};
  const Json trace = Json::parse(trace_of(answer));
  std::map<std::string, int> spans;
  std::vector<std::string> rows;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] == "M") rows.push_back(event["args"]["name"]);
    if (event["ph"] == "X") ++spans[std::string(event["name"])];
  }
  EXPECT_THAT(rows, ::testing::ElementsAre("stage 0: embedding, h.0.mlp", "stage 1: h.0.attention, head"));
  EXPECT_EQ(spans.size(), 2U * 4 * 2 + 1)
      << "forward and backward, micro-batches, ranges; the rest of a step";
  for (const auto& [name, count] : spans) EXPECT_EQ(count, 2) << name << " of both stages";
  EXPECT_EQ(spans.count("backward 3, range 1"), 1U);
  const std::string text = describe(question, answer);
  EXPECT_THAT(text,
              HasSubstr("2 stages of 2 ranges x 1 part x 1 split, 4 micro-batches of 1, breadth-first"));
  EXPECT_THAT(text, HasSubstr("\n      h.0.mlp\n1     h.0.attention"));
  const Json json = to_json(question, answer)["grids"][0];
  EXPECT_EQ(json["ranges"], 2);
  EXPECT_EQ(json["order"], "breadth_first");
}

TEST_F(ClusterCommandTest, SaysWhereNothingFits) {
  command_.plans.device_memory = Bytes{629145600} + 4096;  // context and libraries of one device

  EXPECT_EQ(run(), 2);
  EXPECT_THAT(output_, HasSubstr("none of"));
  EXPECT_THAT(output_, HasSubstr("the one that asks for least needs"));
  EXPECT_EQ(json()["feasible"], false);
}

TEST_F(ClusterCommandTest, StopsWhenAskedTo) {
  command_.stop = [] { return true; };
  EXPECT_EQ(run(), 130);
  EXPECT_THAT(output_, ::testing::Not(HasSubstr("does not fit")));
}

TEST_F(ClusterCommandTest, NamesWhatIsWrong) {
  const auto refused = [&](auto change, const char* words) {
    const ParallelCommand kept = command_;
    change();
    expect_refused(words);
    command_ = kept;
  };
  refused([&] { command_.model.gpt = ""; }, "nothing to cut: give --costs FILE, or a model");
  refused([&] { command_.machine = ""; }, "no cluster: give --machine");
  refused(
      [&] {
        command_.machine = "rtx4090";
        command_.nodes = 2;
      },
      "--nodes 2: rtx4090 says nothing of other");
  refused([&] { command_.nodes = 2048; }, "a cluster of 8192 devices is too large");
  refused([&] { command_.memory = 5; }, "--memory: it goes with --costs");
  refused([&] { command_.devices = 5; }, "--devices: it goes with --costs");
  refused([&] { command_.cluster_file = "c"; }, "--cluster says the machine and the nodes");
  refused([&] { command_.costs_file = "c"; }, "--gpt: --costs has everything");
  refused([&] { command_.model.heads = "7"; }, "heads");
  refused([&] { command_.plans.options.policy = Policy::zero_offload; },
          "--policy zero-offload: emulated systems have no stages");
  const auto beside_costs = [&](auto change, const char* words) {
    refused(
        [&] {
          command_ = {};
          command_.costs_file = "c";
          change();
        },
        words);
  };
  beside_costs([&] { command_.plans.device_memory = 5; }, "with --costs give --memory");
  beside_costs([&] { command_.model.batch = "7"; }, "--batch: --costs has everything");
  beside_costs([&] { command_.asks_for_plans = true; }, "leave out --rung and the options of plans");
  refused(
      [&] {
        command_.machine = "";
        command_.cluster_file =
            folder_.make("c.json", R"({"format": "stowage.cluster", "version": 1, "nodes": 0,
          "machine": "2x-rtx4090"})");
      },
      "c.json': cluster: 'nodes'");
  refused(
      [&] {
        command_.machine = "";
        command_.cluster_file =
            folder_.make("d.json", R"({"format": "stowage.cluster", "version": 1, "nodes": 1,
          "devices_per_node": 2, "machine": "rtx4090"})");
      },
      "'devices_per_node' is 2, and the machine has 1");
}

}  // namespace
}  // namespace stowage
