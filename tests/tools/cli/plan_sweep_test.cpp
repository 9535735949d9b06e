#include "tools/cli/plan_sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/machine/sample_file.h"
#include "tests/support/expect_refused.h"
#include "tests/tools/cli/questions.h"

namespace stowage {
namespace {

using test::chain_question;
using test::model_question;
using test::silent;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(PlanSweep, ReadsWhatToSweep) {
  EXPECT_EQ(parse_sweep("memory").budgets, 12U);
  EXPECT_EQ(parse_sweep("memory=3").budgets, 3U);
  EXPECT_EQ(parse_sweep("memory").over, Sweep::Over::memory);
  EXPECT_EQ(parse_sweep("batch").over, Sweep::Over::batch);
  EXPECT_TRUE(parse_sweep("batch").batches.empty());
  EXPECT_THAT(parse_sweep("batch=1,5,2").batches, ElementsAre(1, 5, 2));
  EXPECT_EQ(parse_sweep("devices").over, Sweep::Over::devices);
  EXPECT_TRUE(parse_sweep("devices").devices.empty());
  EXPECT_THAT(parse_sweep("devices=1,4").devices, ElementsAre(1, 4));
}

TEST(PlanSweep, RefusesWhatIsNoSweep) {
  for (const char* text : {"", "time", "memory=1", "Memory", "batches=2"})
    test::expect_refused([&] { parse_sweep(text); }, "--sweep: \"" + std::string(text) + "\" is no sweep");
  for (const char* text : {"memory=", "memory=0", "memory=-2", "memory=99999999999", "memory=two"})
    test::expect_refused([&] { parse_sweep(text); }, "--sweep memory: \"");
  for (const char* text :
       {"batch=", "batch=1,", "batch=,1", "batch=0", "batch=1,,2", "batch=1;2", "batch=99999999999999999999"})
    test::expect_refused([&] { parse_sweep(text); }, "--sweep batch: \"");
  for (const char* text : {"devices=", "devices=0", "devices=two"})
    test::expect_refused([&] { parse_sweep(text); }, "--sweep devices: \"");
}

TEST(PlanSweep, BudgetsRiseByOneFactor) {
  EXPECT_THAT(sweep_budgets(100, 1600, 5), ElementsAre(100, 200, 400, 800, 1600));
  EXPECT_THAT(sweep_budgets(7, 7, 3), ElementsAre(7));
  EXPECT_THAT(sweep_budgets(7, 8, 12), ElementsAre(7, 8));
  const Bytes large = Bytes{1} << 50U;
  EXPECT_EQ(sweep_budgets(large + 1, 3 * large + 1, 9).front(), large + 1);
  EXPECT_EQ(sweep_budgets(large + 1, 3 * large + 1, 9).back(), 3 * large + 1);
}

TEST(PlanSweep, OverMemoryGoesFromTheMinimumToTheNeed) {
  PlanQuestion question = chain_question();
  question.rates.overhead_bytes = 1_MiB;
  std::vector<std::string> told;
  const auto rows = sweep_memory(question, 4, [&](const std::string& what) { told.push_back(what); });
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_THAT(told, ElementsAre("budget 1 of 4", "budget 2 of 4", "budget 3 of 4", "budget 4 of 4"));
  EXPECT_EQ(rows.front().answer.budget.device, minimum_bytes(question.graph, question.rates));
  EXPECT_EQ(rows.back().answer.budget.device, need_bytes(question.graph, question.rates));
  EXPECT_EQ(rows.back().answer.step_seconds, answer(question).step_seconds);  // more memory brings nothing
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_TRUE(rows[i].answer.feasible) << i;
    EXPECT_LE(rows[i].answer.peak, rows[i].answer.budget.device) << i;
    if (i > 0) {
      EXPECT_LE(rows[i].answer.step_seconds, rows[i - 1].answer.step_seconds) << i;
    }
  }
}

TEST(PlanSweep, OverBatchDoublesUntilOneDoesNotFit) {
  PlanQuestion question = model_question();
  question.model->config.batch = 4;
  question.graph = build(*question.model);
  question.budget.device = minimum_bytes(question.graph, question.rates);
  const auto rows = sweep_batch(question, {}, silent);
  ASSERT_EQ(rows.size(), 4U);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].batch, 1 << i);
    EXPECT_EQ(rows[i].answer.tokens, 16U << i);
    EXPECT_EQ(rows[i].answer.feasible, i < 3) << i;
  }
}

TEST(PlanSweep, OverGivenBatchesTakesEachOfThem) {
  PlanQuestion question = model_question();
  std::vector<std::string> told;
  const auto rows = sweep_batch(question, {3, 1}, [&](const std::string& what) { told.push_back(what); });
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].batch, 3);
  EXPECT_EQ(rows[0].answer.tokens, 48U);
  EXPECT_EQ(rows[1].batch, 1);
  EXPECT_THAT(told, ElementsAre("batch 3, 1 of 2", "batch 1, 2 of 2"));
}

TEST(PlanSweep, OverBatchWantsAModelAndALimit) {
  test::expect_refused([] { sweep_batch(chain_question(), {1}, silent); },
                       "--sweep batch: a saved graph has one batch size");
  test::expect_refused([] { sweep_batch(model_question(), {}, silent); },
                       "--sweep batch: every batch fits an unlimited device; give --device-memory");
}

const ModelWords words_of_four{.gpt = "1x64", .sequence = "16", .batch = "4", .vocabulary = "96"};

PlanQuestion question_on(const MachineFile& file) {
  PlanQuestion question;
  question.model = model_spec(words_of_four, DataType::f32);
  question.measured = &file;
  return question;
}

TEST(PlanSweep, OverDevicesGoesToThoseOfTheMachine) {
  MachineFile file = test::sample_file();
  file.peers->devices = 5;
  std::vector<std::string> told;
  const auto rows = sweep_devices(question_on(file), words_of_four, {},
                                  [&](const std::string& what) { told.push_back(what); });
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_THAT(told, ElementsAre("1 devices, 1 of 3", "2 devices, 2 of 3", "4 devices, 3 of 3"));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].devices, 1 << i);
    EXPECT_EQ(rows[i].answer.devices, 1 << i);
    EXPECT_EQ(rows[i].answer.tokens, 64U);
    EXPECT_EQ(rows[i].answer.peers > 0, i > 0);
    PlanQuestion alone = question_on(file);
    ModelWords words = words_of_four;
    words.devices = std::to_string(1 << i);
    alone.model = model_spec(words, DataType::f32);
    alone.rates = machine_for(file, DataType::f32, 1 << i);
    alone.take(build(*alone.model));
    EXPECT_EQ(rows[i].answer.step_seconds, answer(alone).step_seconds);
  }
  const std::string text = describe(rows);
  EXPECT_EQ(text.find("devices  "), 0U);
  EXPECT_THAT(text, HasSubstr("from others"));
  EXPECT_THAT(text, HasSubstr("\n4         "));
  EXPECT_EQ(to_json(rows)[2]["devices"], 4);
  const auto given = sweep_devices(question_on(file), words_of_four, {4, 1}, silent);
  ASSERT_EQ(given.size(), 2U);
  EXPECT_EQ(given[0].answer.step_seconds, rows[2].answer.step_seconds);
  EXPECT_EQ(given[1].devices, 1);
}

TEST(PlanSweep, OverDevicesWantsAModelAndAMachineThatHasThem) {
  const MachineFile file = test::sample_file();
  std::vector<std::string> told;
  const auto refused = [&](const PlanQuestion& question, std::vector<std::int64_t> devices,
                           const char* words) {
    test::expect_refused(
        [&] {
          sweep_devices(question, words_of_four, std::move(devices),
                        [&](const std::string& what) { told.push_back(what); });
        },
        words);
  };
  refused(chain_question(), {}, "--sweep devices: a saved graph is one device's");
  refused(model_question(), {}, "--sweep devices: give --machine");
  refused(question_on(file), {}, "--devices 8 does not divide 4 samples");
  refused(question_on(file), {1, 3}, "--devices 3 is no power of two");
  MachineFile one = file;
  one.peers.reset();
  refused(question_on(one), {1, 2}, "its file has no peer link");
  EXPECT_THAT(told, ElementsAre());
  EXPECT_EQ(sweep_devices(question_on(one), words_of_four, {}, silent).size(), 1U);
}

TEST(PlanSweep, IsOneRowEach) {
  PlanQuestion question = model_question();
  question.budget.device = 1_MiB;
  const auto rows = sweep_batch(question, {1, 4096}, silent);
  ASSERT_TRUE(rows[0].answer.feasible);
  ASSERT_FALSE(rows[1].answer.feasible);
  const std::string text = describe(rows);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  EXPECT_EQ(text.find("batch   "), 0U);
  EXPECT_THAT(text, HasSubstr("\n4096          does not fit: "));
  const auto json = to_json(rows);
  ASSERT_EQ(json.size(), 2U);
  EXPECT_EQ(json[0]["batch"], 1);
  EXPECT_EQ(json[0]["peak_bytes"], rows[0].answer.peak);
  EXPECT_EQ(json[1]["batch"], 4096);
  EXPECT_EQ(json[1]["feasible"], false);

  PlanQuestion chain = chain_question();
  const auto budgets = sweep_memory(chain, 2, silent);
  EXPECT_EQ(describe(budgets).find("budget  "), 0U);
  EXPECT_FALSE(to_json(budgets)[0].contains("batch"));
  EXPECT_EQ(to_json(budgets)[0]["budget_bytes"], budgets[0].answer.budget.device);
}

}  // namespace
}  // namespace stowage
