#include "tools/answer/plan_answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/cli/questions.h"
#include "tools/cli/plan_sweep.h"

namespace stowage {
namespace {

using test::chain_question;
using test::devices_question;
using test::model_question;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(PlanAnswer, HasThePlansAccounts) {
  PlanQuestion question = chain_question();
  question.budget.device =
      (minimum_bytes(question.graph, question.rates) + need_bytes(question.graph, question.rates)) / 2;
  Plan plan;
  const PlanAnswer found = answer(question, &plan);
  ASSERT_TRUE(found.feasible);
  EXPECT_EQ(plan, std::get<Plan>(make_plan(question.graph, question.rates, question.budget)));
  EXPECT_EQ(found.need, need_bytes(question.graph, question.rates));
  EXPECT_EQ(found.minimum, minimum_bytes(question.graph, question.rates));
  EXPECT_EQ(found.peak, plan.device_peak_bytes);
  EXPECT_EQ(found.arena, plan.device_peak_bytes);
  EXPECT_EQ(found.live_arena, plan.live_peak_bytes);
  EXPECT_EQ(found.host, plan.host_bytes);
  EXPECT_EQ(found.pinned, plan.pinned_bytes);
  EXPECT_EQ(found.h2d, plan.h2d_bytes);
  EXPECT_EQ(found.d2h, plan.d2h_bytes);
  EXPECT_EQ(found.step_seconds, plan.predicted_step_seconds);
  EXPECT_EQ(found.stall_seconds, plan.predicted_stall_seconds);
  EXPECT_EQ(found.lower_bound_seconds, plan.lower_bound_seconds);
  EXPECT_EQ(found.bound_by, plan.bound_by);
  EXPECT_EQ(found.parameters, 3U * 4096);
  EXPECT_EQ(found.tokens, 16U);  // of the input named so
  EXPECT_DOUBLE_EQ(found.gap(), plan.predicted_step_seconds / plan.lower_bound_seconds - 1);
}

TEST(PlanAnswer, SaysWhatFillsHostMemory) {
  PlanQuestion question = chain_question();
  question.rates.host_bytes_per_second = 1e7;
  question.budget.device = minimum_bytes(question.graph, question.rates);
  EXPECT_THAT(describe(question, answer(question)), HasSubstr("bound by host;"));
  question.rates.host_total_bytes_per_second = 1e7;
  const PlanAnswer found = answer(question);
  EXPECT_EQ(found.bound_by, Plan::host_memory_binds);
  const std::string lines = describe(question, found);
  EXPECT_THAT(lines, HasSubstr("bound by host memory; the gap"));
  EXPECT_THAT(lines, HasSubstr("  host memory 0.0 GB by updates, 0.0 GB in, 0.0 GB out; "));
  EXPECT_THAT(lines, HasSubstr(" of this step at 0.0 GB/s\n"));
}

TEST(PlanAnswer, CountsTheOverheadInEveryBudget) {
  PlanQuestion question = chain_question();
  const Bytes least = minimum_bytes(question.graph, question.rates);
  const Bytes need = need_bytes(question.graph, question.rates);
  question.rates.overhead_bytes = 1_MiB;
  question.budget.device = least + 1_MiB;
  const PlanAnswer found = answer(question);
  EXPECT_TRUE(found.feasible);
  EXPECT_EQ(found.minimum, least + 1_MiB);
  EXPECT_EQ(found.need, need + 1_MiB);
  EXPECT_EQ(found.peak, least + 1_MiB);
  EXPECT_EQ(found.arena, least);
  EXPECT_THAT(describe(question, found), HasSubstr("in each     1.00 MiB (1048576 bytes) for context"));
  --question.budget.device;
  const PlanAnswer refused = answer(question);
  EXPECT_FALSE(refused.feasible);
  EXPECT_EQ(refused.smallest, least + 1_MiB);
  EXPECT_EQ(refused.minimum, least + 1_MiB);
}

TEST(PlanAnswer, KnowsTheTokensOfAModelAndOfAGraph) {
  PlanQuestion question = model_question();
  const PlanAnswer found = answer(question);
  EXPECT_EQ(found.tokens, 32U);
  EXPECT_DOUBLE_EQ(found.tokens_per_second(), 32 / found.step_seconds);
  question.model.reset();
  EXPECT_EQ(question.tokens(), 32U);
  for (Tensor& tensor : question.graph.tensors) {
    if (tensor.name == "tokens") tensor.name = "words";
  }
  const PlanAnswer unknown = answer(question);
  EXPECT_EQ(unknown.tokens, 0U);
  EXPECT_TRUE(to_json(unknown)["tokens_per_second"].is_null());
  EXPECT_EQ(describe(question, unknown).find("tokens/s"), std::string::npos);
}

TEST(PlanAnswer, IsToldInOneScreen) {
  PlanQuestion question = model_question();
  question.machine = "Card on node, not measured";
  question.budget = {64_MiB, 1_GiB};
  const std::string text = describe(question, answer(question));
  for (const char* part : {"fits          yes\n",
                           "gpt, 1 layers, width 64, heads 1, vocabulary 96: 59,328 parameters, f32\n",
                           "2 samples of 16 tokens: 32 tokens",
                           "machine       Card on node, not measured\n",
                           "need          ",
                           "minimum       ",
                           "budget        64.00 MiB (67108864 bytes), ",
                           "host budget   1.00 GiB",
                           "peak          ",
                           "host          ",
                           " pinned\n",
                           "  parameters  ",
                           " buckets resident, ",
                           "  optimizer   ",
                           "  activations ",
                           "traffic       ",
                           "step          ",
                           " tokens/s, stall ",
                           "lower bound   ",
                           "bound by compute; the gap is "}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 24);
  EXPECT_THAT(text, Not(HasSubstr("in each")));
}

TEST(PlanAnswer, IsOneObjectOfJson) {
  PlanQuestion question = model_question();
  question.budget.device = 64_MiB;
  const PlanAnswer found = answer(question);
  const auto json = nlohmann::json::parse(to_json(question, found).dump());
  EXPECT_EQ(json["feasible"], true);
  EXPECT_EQ(json["policy"], "auto");
  EXPECT_EQ(json["emulated"], false);
  EXPECT_EQ(json["peak_bytes"], found.peak);
  EXPECT_EQ(json["device_peak_bytes"], found.arena);
  EXPECT_EQ(json["live_peak_bytes"], found.live_arena);
  EXPECT_EQ(json["minimum_device_bytes"], found.minimum);
  EXPECT_EQ(json["need_bytes"], found.need);
  EXPECT_EQ(json["budget_bytes"], 64_MiB);
  EXPECT_EQ(json["overhead_bytes"], 0);
  EXPECT_EQ(json["host_bytes"], found.host);
  EXPECT_TRUE(json["host_budget_bytes"].is_null());
  EXPECT_EQ(json["pinned_bytes"], found.pinned);
  EXPECT_EQ(json["h2d_bytes"], found.h2d);
  EXPECT_EQ(json["d2h_bytes"], found.d2h);
  EXPECT_EQ(json["step_seconds"], found.step_seconds);
  EXPECT_EQ(json["stall_seconds"], found.stall_seconds);
  EXPECT_EQ(json["lower_bound_seconds"], found.lower_bound_seconds);
  EXPECT_EQ(json["gap"], found.gap());
  EXPECT_EQ(json["bound_by"], found.bound_by);
  EXPECT_EQ(json["host_update_bytes"], found.host_traffic.updates);
  EXPECT_EQ(json["host_traffic_bytes"], found.host_traffic.updates + found.h2d + found.d2h);
  EXPECT_EQ(json["tokens_per_second"], found.tokens_per_second());
  EXPECT_EQ(json["parameters"], 59328);
  EXPECT_TRUE(json["op"].is_null());
  EXPECT_EQ(json["model"]["layers"], 1);
  EXPECT_EQ(json["model"]["type"], "f32");
  EXPECT_FALSE(json.contains("machine"));
}

TEST(PlanAnswer, OfSeveralDevicesHostMemoryIsThatOfAll) {
  PlanQuestion question = devices_question();
  question.budget.device = minimum_bytes(question.graph, question.rates);
  Plan plan;
  const PlanAnswer found = answer(question, &plan);
  ASSERT_TRUE(found.feasible);
  EXPECT_EQ(found.devices, 2);
  EXPECT_EQ(found.peak, plan.device_peak_bytes);
  EXPECT_EQ(found.host, 2 * plan.host_bytes);
  EXPECT_EQ(found.pinned, 2 * plan.pinned_bytes);
  EXPECT_EQ(found.on_host.total(), 2 * host_tally(question.graph, plan).total());
  EXPECT_EQ(found.tokens, 64U);
  PlanQuestion alone = question;
  alone.model =
      model_spec({.gpt = "2x64", .sequence = "16", .batch = "4", .vocabulary = "96"}, DataType::f32);
  EXPECT_EQ(found.parameters, parameter_count(build(*alone.model)).all);

  question.budget.host = found.host;
  EXPECT_EQ(question.budget_of_each().host, found.host / 2);
  EXPECT_TRUE(answer(question).feasible);
  EXPECT_TRUE(fits(question));
  question.budget.host = 1;
  const PlanAnswer refused = answer(question);
  EXPECT_FALSE(refused.feasible);
  EXPECT_FALSE(fits(question));
  EXPECT_TRUE(refused.lacks_host);
  question.budget.host = refused.smallest;
  EXPECT_TRUE(answer(question).feasible);
  --question.budget.host;
  EXPECT_FALSE(answer(question).feasible);
}

TEST(PlanAnswer, OfSeveralDevicesSaysWhatEachReceives) {
  const PlanQuestion question = devices_question();
  Plan plan;
  const PlanAnswer found = answer(question, &plan);
  EXPECT_GT(found.peers, 0U);
  EXPECT_EQ(found.peers, peer_bytes(question.graph, plan));
  const std::string text = describe(question, found);
  for (const char* part :
       {"devices       2 that train it together, each 2 samples and 1/2 of weights, gradients and state\n",
        "2 micro-batches in 2 gradient groups, of all (--micro-batches, --gradient-groups)\n",
        "device memory is that of each, host memory that of all together\n", " from the others per step\n"})
    EXPECT_THAT(text, HasSubstr(part));
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 24);
  const auto json = to_json(question, found);
  EXPECT_EQ(json["devices"], 2);
  EXPECT_EQ(json["peer_bytes"], found.peers);
  EXPECT_EQ(json["host_bytes"], found.host);
  PlanQuestion over_link = question;
  over_link.rates.peer_path = PeerPath::link;
  EXPECT_THAT(describe(over_link, answer(over_link)),
              HasSubstr(" from the others over the same link per step\n"));
  over_link.rates.peer_path = PeerPath::host_memory;
  EXPECT_THAT(describe(over_link, answer(over_link)),
              HasSubstr(" from the others over the same link, through host memory, per step\n"));
  const PlanQuestion one = model_question();
  EXPECT_EQ(to_json(answer(one))["devices"], 1);
  EXPECT_EQ(to_json(answer(one))["peer_bytes"], 0);
  EXPECT_THAT(describe(one, answer(one)), Not(HasSubstr("devices  ")));
  EXPECT_THAT(describe(one, answer(one)), Not(HasSubstr("from the others")));
}

TEST(PlanAnswer, ShowsThatAnotherSystemIsEmulated) {
  PlanQuestion question = model_question();
  EXPECT_THAT(describe(question, answer(question)), Not(HasSubstr("policy")));
  question.options.policy = Policy::gemini_cpu;
  const PlanAnswer found = answer(question);
  EXPECT_THAT(describe(question, found), HasSubstr("gemini-cpu (emulated)"));
  const auto json = to_json(question, found);
  EXPECT_EQ(json["policy"], "gemini-cpu");
  EXPECT_EQ(json["emulated"], true);
}

TEST(PlanAnswer, WhereItDoesNotFitSaysWhatWould) {
  PlanQuestion question = chain_question();
  const Bytes least = minimum_bytes(question.graph, question.rates);
  question.budget.device = least - 1;
  const PlanAnswer found = answer(question);
  EXPECT_FALSE(found.feasible);
  EXPECT_THAT(describe(question, found), HasSubstr("of device memory; the smallest budget that works is " +
                                                   std::to_string(least) + "\n"));
  const auto json = to_json(found);
  EXPECT_EQ(json["feasible"], false);
  EXPECT_EQ(json["minimum_device_bytes"], least);
  EXPECT_EQ(json["smallest_bytes"], least);
  EXPECT_EQ(json["lacks"], "device");
  EXPECT_EQ(json["op"], found.op);
  EXPECT_FALSE(found.op.empty());
  EXPECT_EQ(json["smallest_is_at_most"], false);
  for (const char* key : {"peak_bytes", "device_peak_bytes", "host_bytes", "h2d_bytes", "d2h_bytes",
                          "step_seconds", "lower_bound_seconds", "gap", "bound_by", "host_update_bytes",
                          "host_traffic_bytes", "pinned_bytes", "tokens_per_second"})
    EXPECT_TRUE(json[key].is_null()) << key;
}

TEST(PlanAnswer, SaysWhenItIsTheHostThatIsTooSmall) {
  PlanQuestion question = chain_question();
  question.budget = {minimum_bytes(question.graph, question.rates), 1};
  const PlanAnswer found = answer(question);
  EXPECT_FALSE(found.feasible);
  EXPECT_TRUE(found.lacks_host);
  EXPECT_THAT(refusal(found), ::testing::StartsWith("the step needs "));
  EXPECT_THAT(refusal(found), HasSubstr("of host memory"));
  EXPECT_EQ(to_json(found)["lacks"], "host");
  EXPECT_EQ(to_json(found)["smallest_is_at_most"], false);
  PlanAnswer of_file = found;
  of_file.host_from_machine = true;
  of_file.machine_file = "here.json";
  EXPECT_THAT(refusal(of_file), HasSubstr("--machine here.json: give --host-memory"));
  EXPECT_THAT(refusal(found), Not(HasSubstr("--host-memory")));
  PlanAnswer cut_short = found;
  cut_short.smallest_is_at_most = true;
  EXPECT_THAT(refusal(cut_short), HasSubstr("that works is at most " + std::to_string(found.smallest)));
  EXPECT_EQ(to_json(cut_short)["smallest_is_at_most"], true);
  question.budget.host = found.smallest;
  EXPECT_TRUE(answer(question).feasible);
}

}  // namespace
}  // namespace stowage
