#include "tools/cli/plan_sweep.h"

#include <gtest/gtest.h>

#include "tests/support/expect_refused.h"
#include "tests/tools/cli/questions.h"

namespace stowage {
namespace {

const ModelWords tiny_words{.sequence = "8", .batch = "1", .vocabulary = "32"};
const std::vector<GptSize> tiny_ladder = {
    {"", 1, 64, 1}, {"", 2, 64, 1}, {"", 3, 64, 1}, {"", 1, 128, 2}, {"", 2, 128, 2}};

Bytes need_of(const GptSize& size) {
  return need_bytes(build(model_spec(size, tiny_words, DataType::f32)), Machine{});
}

// Planned in an instant: with everything on the device there is nothing to choose.
MaxModel find(Bytes device, Plan* plan = nullptr, const Progress& progress = test::silent) {
  PlanQuestion question;
  question.options.policy = Policy::none;
  question.budget.device = device;
  return max_model(question, tiny_ladder, tiny_words, DataType::f32, progress, plan);
}

TEST(MaxModel, FindsTheLargestThatFitsToTheByte) {
  for (std::size_t place = 0; place < tiny_ladder.size(); ++place) {
    const Bytes need = need_of(tiny_ladder[place]);
    const MaxModel found = find(need);
    EXPECT_TRUE(found.answer.feasible);
    EXPECT_EQ(found.place, place);
    EXPECT_EQ(found.question.model->config.layers, tiny_ladder[place].layers);
    EXPECT_EQ(found.question.model->config.width, tiny_ladder[place].width);
    EXPECT_EQ(found.answer.peak, need);
    EXPECT_EQ(find(need - 1).place, place == 0 ? 0 : place - 1);
  }
}

TEST(MaxModel, SaysWhenNotEvenTheSmallestFits) {
  Plan plan;
  const MaxModel found = find(need_of(tiny_ladder.front()) - 1, &plan);
  EXPECT_FALSE(found.answer.feasible);
  EXPECT_EQ(found.answer.smallest, need_of(tiny_ladder.front()));
  EXPECT_EQ(found.question.model->config.layers, 1);
  EXPECT_TRUE(plan.instructions.empty());
}

TEST(MaxModel, TellsWhichSizesItTriesAndGivesThePlan) {
  std::vector<std::string> tried;
  Plan plan;
  const MaxModel found =
      find(need_of(tiny_ladder[1]), &plan, [&](const std::string& what) { tried.push_back(what); });
  // The middle one of five, the upper one of the two below it, then what was found.
  EXPECT_EQ(tried,
            (std::vector<std::string>{"3 layers, width 64", "2 layers, width 64", "2 layers, width 64"}));
  EXPECT_EQ(plan.device_peak_bytes, found.answer.arena);
}

TEST(MaxModel, WantsALimit) {
  test::expect_refused(
      [] { find(unlimited); },
      "--max-model: every model fits an unlimited device; give --device-memory or a machine");
}

TEST(MaxModel, FitsAsThePlannerSays) {
  PlanQuestion question = test::chain_question();
  question.rates.overhead_bytes = 1_MiB;
  const Bytes least = minimum_bytes(question.graph, question.rates);
  EXPECT_TRUE(fits(question));
  question.budget.device = least;
  EXPECT_TRUE(fits(question));
  const Bytes host = answer(question).host;
  for (const Bytes bytes : {host, host - 1, host / 2, Bytes{1}}) {
    question.budget.host = bytes;
    EXPECT_EQ(fits(question), answer(question).feasible) << bytes;
  }
  EXPECT_FALSE(fits(question));
  question.budget = {least - 1, unlimited};
  EXPECT_FALSE(fits(question));
}

}  // namespace
}  // namespace stowage
