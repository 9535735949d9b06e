#include "tools/cli/micro_batch_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <stop_token>

#include "tests/support/expect_refused.h"
#include "tests/support/temporary_folder.h"
#include "tests/tools/cli/questions.h"
#include "tools/choices/machine_choice.h"
#include "tools/cli/plan_command.h"

namespace stowage {
namespace {

using test::silent;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// One layer, four samples of 16 tokens.
const ModelWords choice_words{
    .gpt = "1x64", .sequence = "16", .batch = "4", .micro_batches = "auto", .vocabulary = "96"};

ModelWords with_number(ModelWords words, std::int64_t number) {
  words.micro_batches = std::to_string(number);
  return words;
}

std::vector<std::int64_t> numbers_of(const ModelWords& words) {
  std::vector<std::int64_t> numbers;
  for (const ModelSpec& model : micro_batch_models(words, DataType::f32))
    numbers.push_back(model.config.micro_batches);
  return numbers;
}

MicroBatchChoice choose(const PlanQuestion& question, const Progress& progress = silent) {
  return choose_micro_batches(question, micro_batch_models(choice_words, DataType::f32), progress);
}

// Answers the same question for one number and order, from words alone.
PlanAnswer answer_alone(PlanQuestion question, const MicroBatchRow& row) {
  question.model = model_spec(with_number(choice_words, row.micro_batches), DataType::f32);
  question.take(build(*question.model));
  question.options.order = row.order;
  return answer(question);
}

// Returns the least budget over all numbers, each of which may have any order.
Bytes least_device_memory() {
  Bytes least = unlimited;
  for (const ModelSpec& model : micro_batch_models(choice_words, DataType::f32))
    least = std::min(least, minimum_bytes(build(model), Machine{}));
  return least;
}

TEST(MicroBatchChoice, TriesTheNumbersThatDivideTheBatchOfADevice) {
  const auto numbers = [](const char* batch, const char* devices = "", const char* groups = "") {
    return numbers_of({.gpt = "2x64", .batch = batch, .gradient_groups = groups, .devices = devices});
  };
  EXPECT_THAT(numbers("1"), ElementsAre(1));
  EXPECT_THAT(numbers("7"), ElementsAre(1, 7));
  EXPECT_THAT(numbers("12"), ElementsAre(1, 2, 3, 4, 6));
  EXPECT_THAT(numbers("32"), ElementsAre(1, 2, 4, 8));
  EXPECT_THAT(numbers("24", "2"), ElementsAre(2, 4, 6, 8, 12));
  EXPECT_THAT(numbers("8", "8"), ElementsAre(8));
  EXPECT_THAT(numbers("24", "", "4"), ElementsAre(4, 8));
  EXPECT_THAT(numbers("24", "2", "4"), ElementsAre(4, 8, 12));
  EXPECT_THAT(numbers_of({.bert = "2x64", .batch = "4"}), ElementsAre(1, 2, 4));
}

// The default of the head's chunk depends on the tokens of a micro-batch.
TEST(MicroBatchChoice, MakesEachModelFromTheWordsAnew) {
  const ModelWords words{.gpt = "1x4096", .sequence = "1024", .batch = "32", .vocabulary = "96"};
  const std::vector<ModelSpec> models = micro_batch_models(words, DataType::f32);
  ASSERT_EQ(models.size(), 4U);
  for (const ModelSpec& model : models) {
    const std::int64_t number = model.config.micro_batches;
    const Graph alone = build(*model_spec(with_number(words, number), DataType::f32));
    EXPECT_TRUE(to_json(build(model)) == to_json(alone)) << number;
  }
}

TEST(MicroBatchChoice, RefusesWordsWithoutAModelOrANumber) {
  const auto refused = [](const ModelWords& words, const char* saying) {
    test::expect_refused([&] { micro_batch_models(words, DataType::f32); }, saying);
  };
  refused({.micro_batches = "auto"}, "--micro-batches auto: a saved graph has its own number; leave it out");
  refused({.gpt = "2x64", .batch = "16", .micro_batches = "auto", .gradient_groups = "16"},
          "--micro-batches auto: --gradient-groups 16 divides no number of up to 8 micro-batches on each "
          "device; give --micro-batches a multiple of 16, or fewer groups");
  refused({.gpt = "2x64", .batch = "6", .micro_batches = "auto", .devices = "4"},
          "--devices 4 does not divide 6 samples");
}

TEST(MicroBatchChoice, PlansEachNumberInEachOrderAndFindsTheFastest) {
  PlanQuestion question;
  question.budget.device = least_device_memory() * 9 / 8;
  std::vector<std::string> told;
  const MicroBatchChoice choice = choose(question, [&](const std::string& what) { told.push_back(what); });
  EXPECT_THAT(told,
              ElementsAre("micro-batches 1, 1 of 3, layer_major", "micro-batches 2, 2 of 3, layer_major",
                          "micro-batches 2, 2 of 3, batch_major", "micro-batches 4, 3 of 3, layer_major",
                          "micro-batches 4, 3 of 3, batch_major"));
  ASSERT_EQ(choice.rows.size(), told.size());
  double least = std::numeric_limits<double>::infinity();
  for (const MicroBatchRow& row : choice.rows) {
    const PlanAnswer alone = answer_alone(question, row);
    EXPECT_EQ(row.answer.feasible, alone.feasible);
    EXPECT_EQ(row.answer.step_seconds, alone.step_seconds);
    EXPECT_EQ(row.answer.minimum, alone.minimum);
    if (alone.feasible) least = std::min(least, alone.step_seconds);
  }
  EXPECT_EQ(choice.answer().step_seconds, least);
  EXPECT_EQ(choice.plan.predicted_step_seconds, least);
  const MicroBatchRow& best = choice.rows[choice.best];
  EXPECT_EQ(choice.question.model->config.micro_batches, best.micro_batches);
  EXPECT_EQ(choice.question.options.order, best.order);
  EXPECT_EQ(choice.question.graph.micro_batches, best.micro_batches);
}

TEST(MicroBatchChoice, SaysWhichRowsFitAndMarksTheFastest) {
  PlanQuestion question;
  question.budget.device = least_device_memory();
  const MicroBatchChoice choice = choose(question);
  const std::string number = std::to_string(choice.rows[choice.best].micro_batches);
  const std::string text = describe(choice);
  EXPECT_EQ(text.find("micro-batches order "), 0U);
  EXPECT_THAT(text, HasSubstr("\n1             layer_major  does not fit: "));
  EXPECT_THAT(text, HasSubstr("\n" + number + " (fastest)"));
  EXPECT_EQ(text.find("(fastest)"), text.rfind("(fastest)"));
  EXPECT_THAT(text,
              HasSubstr("\nrun with      --micro-batches " + number + ": a run must name it, since it "));
  EXPECT_THAT(text, HasSubstr("\n  order       "));
  const auto json = to_json(choice);
  ASSERT_EQ(json.size(), choice.rows.size());
  for (std::size_t i = 0; i < json.size(); ++i) {
    const PlanAnswer& row = choice.rows[i].answer;
    EXPECT_EQ(json[i]["micro_batches"], choice.rows[i].micro_batches);
    EXPECT_EQ(json[i]["order"], std::string(to_string(choice.rows[i].order)));
    EXPECT_EQ(json[i]["best"], i == choice.best);
    EXPECT_EQ(json[i]["feasible"], row.feasible);
    EXPECT_EQ(json[i]["minimum_device_bytes"], row.minimum);
    if (row.feasible) {
      EXPECT_EQ(json[i]["step_seconds"], row.step_seconds);
      EXPECT_EQ(json[i]["peak_bytes"], row.peak);
    } else {
      EXPECT_TRUE(json[i]["step_seconds"].is_null());
      EXPECT_EQ(json[i]["smallest_bytes"], row.minimum);
    }
  }
}

TEST(MicroBatchChoice, NamesNoOrderWhereThereIsOne) {
  PlanQuestion question;
  question.options.policy = Policy::zero_offload;
  const MicroBatchChoice choice = choose(question);
  ASSERT_EQ(choice.rows.size(), 3U);
  EXPECT_THAT(describe(choice), Not(HasSubstr("\n  order       ")));
}

TEST(MicroBatchChoice, SaysTheLeastBudgetWhereNothingFits) {
  PlanQuestion question;
  const Bytes least = least_device_memory();
  question.budget.device = least - 1;
  const MicroBatchChoice choice = choose(question);
  EXPECT_FALSE(choice.answer().feasible);
  EXPECT_EQ(choice.answer().smallest, least);
  EXPECT_TRUE(choice.plan.instructions.empty());
  const std::string text = describe(choice);
  EXPECT_THAT(text, Not(HasSubstr("(fastest)")));
  EXPECT_THAT(text, HasSubstr("\nnone fits     the least budget is " + exact(least) +
                              " of device memory, with --micro-batches "));
  for (const auto& row : to_json(choice)) EXPECT_EQ(row["best"], false);
  // Of rows that lack host memory only, the one that lacks the fewest bytes.
  question.budget = {least, 1};
  const MicroBatchChoice of_host = choose(question);
  EXPECT_TRUE(of_host.answer().lacks_host);
  EXPECT_THAT(describe(of_host), HasSubstr(" of host memory, with --micro-batches "));
}

TEST(MicroBatchChoice, EndsWhereAskedTo) {
  std::stop_source stop;
  PlanQuestion question;
  question.options.stop = stop.get_token();
  EXPECT_THROW(choose(question,
                      [&](const std::string& what) {
                        if (what.starts_with("micro-batches 2")) stop.request_stop();
                      }),
               Cancelled);
}

class MicroBatchCommandTest : public ::testing::Test {
 protected:
  MicroBatchCommandTest() { command_.model = choice_words; }
  int run() {
    output_.clear();
    return run_plan_command(command_, output_);
  }
  void expect_refused(const char* saying) {
    test::expect_refused([&] { run(); }, saying);
    EXPECT_EQ(output_, "");
    EXPECT_EQ(folder_.entries(), 0U);
  }

  TemporaryFolder folder_;
  PlanCommand command_;
  std::string output_;
};

TEST_F(MicroBatchCommandTest, AnswersForTheFastest) {
  command_.device_memory = least_device_memory();
  EXPECT_EQ(run(), 0);
  EXPECT_EQ(output_.find("micro-batches order "), 0U);
  EXPECT_THAT(output_, HasSubstr("\n\nfits          yes\n"));
}

TEST_F(MicroBatchCommandTest, AnswersProgramsAndWritesThePlan) {
  command_.device_memory = least_device_memory() * 9 / 8;
  command_.model.batch = "2";
  command_.plan_file = folder_.file("plan.json");
  command_.json = true;
  EXPECT_EQ(run(), 0);
  const auto json = nlohmann::json::parse(output_);
  const auto& choices = json["micro_batch_choices"];
  ASSERT_EQ(choices.size(), 3U);
  double least = std::numeric_limits<double>::infinity();
  for (const auto& row : choices) {
    if (row["feasible"].get<bool>()) least = std::min(least, row["step_seconds"].get<double>());
    if (row["best"].get<bool>()) {
      EXPECT_EQ(json["model"]["micro_batches"], row["micro_batches"]);
    }
  }
  EXPECT_EQ(json["step_seconds"], least);
  EXPECT_EQ(plan_from_json(contents_of(command_.plan_file)).predicted_step_seconds, least);
}

TEST_F(MicroBatchCommandTest, SaysTwoWhereNothingFitsAndWritesNothing) {
  command_.plan_file = folder_.file("plan.json");
  command_.device_memory = least_device_memory() - 1;
  EXPECT_EQ(run(), 2);
  EXPECT_THAT(output_, HasSubstr("\nnone fits     the least budget is "));
  EXPECT_THAT(output_, HasSubstr("\n\nfits          no: "));
  EXPECT_EQ(folder_.entries(), 0U);
  command_.json = true;
  EXPECT_EQ(run(), 2);
  EXPECT_EQ(nlohmann::json::parse(output_)["smallest_bytes"], least_device_memory());
  command_.device_memory = least_device_memory();
  EXPECT_EQ(run(), 0);
}

TEST_F(MicroBatchCommandTest, PlansForSeveralDevices) {
  command_.model.devices = "2";
  command_.machine = "2x-rtx4090";
  command_.machines = machines_folder();
  command_.options.policy = Policy::none;
  command_.report_file = folder_.file("plan.html");
  EXPECT_EQ(run(), 0);
  EXPECT_THAT(contents_of(command_.report_file), HasSubstr("<!DOCTYPE html>"));
  EXPECT_THAT(output_, HasSubstr("\n2 "));
  EXPECT_THAT(output_, HasSubstr("\n4 "));
  EXPECT_THAT(output_, Not(HasSubstr("\n1 ")));
  EXPECT_THAT(output_, HasSubstr("devices       2 that train it together"));
}

TEST_F(MicroBatchCommandTest, RefusesQuestionsOfOneNumber) {
  command_.sweep = "memory";
  expect_refused(
      "--micro-batches auto: --sweep asks about one number of micro-batches; give a number, or leave out "
      "--sweep");
  command_.sweep.clear();
  command_.model.gpt.clear();
  command_.max_model = true;
  expect_refused("--micro-batches auto: --max-model asks about one number of micro-batches");
  command_.max_model = false;
  command_.model = {.micro_batches = "auto"};
  command_.graph_file = "graph.json";
  expect_refused("--micro-batches auto: a saved graph has its own number");
}

}  // namespace
}  // namespace stowage
