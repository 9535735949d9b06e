// AdamW with its options: each step's change is that of AdamW written out in doubles, with the parameters
// that decay told by their names, and the bits are the same wherever the update runs, also where one bucket
// holds parameters that decay and others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "stowage/engine.h"
#include "stowage/models.h"
#include "stowage/planner.h"
#include "stowage/simulated_device.h"
#include "tests/offload/engine/training_run.h"
#include "tests/support/quick_plan.h"

namespace stowage {
namespace {

using namespace stowage::testing;

constexpr std::int32_t vocabulary = 64;
constexpr std::uint64_t steps = 3;

struct Case {
  const char* name;
  AdamW optimizer;
  friend void PrintTo(const Case& of, std::ostream* out) { *out << of.name; }
};
const Case cases[] = {
    {"matrices", {.weight_decay = 0.5}},
    {"all", {.weight_decay = 0.5, .decayed = DecayedParameters::all}},
    {"bert", {.beta1 = 0.8, .beta2 = 0.999, .epsilon = 1e-3, .weight_decay = 0.01}},
};

Graph graph_with(const AdamW& optimizer) {
  GraphBuilder builder;
  const BuiltModel model = gpt(
      builder, {.layers = 2, .width = 32, .heads = 2, .vocabulary = vocabulary, .sequence = 16, .batch = 2});
  return builder.finish(model.loss, optimizer);
}

bool is_matrix(const std::string& name) {
  return !name.ends_with(".bias") && name.find("ln_") == std::string::npos;
}

std::vector<double> floats(const std::vector<std::byte>& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return {values.begin(), values.end()};
}

// The moments are means of one gradient and of its squares: the gradient that the first one tells, as exactly
// as f32 does, leads to the second.
void expect_one_gradient(const AdamW& of, const std::vector<std::vector<std::byte>>& before,
                         const std::vector<std::vector<std::byte>>& after, const Op& op) {
  constexpr double unit = 0x1p-23;
  const std::vector<double> m = floats(before[op.writes[1]]), new_m = floats(after[op.writes[1]]);
  const std::vector<double> v = floats(before[op.writes[2]]), new_v = floats(after[op.writes[2]]);
  for (std::size_t i = 0; i < m.size(); ++i) {
    const double g = (new_m[i] - of.beta1 * m[i]) / (1 - of.beta1);
    const double off = 2 * unit * (std::abs(new_m[i]) + std::abs(m[i])) / (1 - of.beta1);
    const double expected = of.beta2 * v[i] + (1 - of.beta2) * g * g;
    const double tolerance = (1 - of.beta2) * (2 * std::abs(g) + off) * off + 4 * unit * expected;
    ASSERT_NEAR(new_v[i], expected, tolerance + 1e-40) << i;
  }
}

class Update : public ::testing::TestWithParam<Case> {
 protected:
  // One budget between the least and the need in which both the host and the device update something.
  Plan shared_plan() const {
    const Machine machine;
    const PlanOptions options{.bucket_bytes = 8_KiB};
    Planner planner = quick_planner(graph_, machine, options);
    const Bytes least = planner.minimum_bytes(), need = planner.need_bytes();
    for (Bytes part = 1; part < 16; ++part) {
      const Bytes budget = least + part * (need - least) / 16;
      Plan plan = std::get<Plan>(planner.answer({.device = budget}).outcome);
      if (updates(plan, LaneRole::host) > 0 && updates(plan, LaneRole::compute) > 0) return plan;
    }
    ADD_FAILURE() << "no plan shares the updates";
    return {};
  }

  std::ptrdiff_t updates(const Plan& plan, LaneRole lane) const {
    return std::count_if(plan.instructions.begin(), plan.instructions.end(), [&](const Instruction& each) {
      return each.lane == lane && each.kind == InstructionKind::commit &&
             graph_.op(each.op).kernel == "adamw";
    });
  }

  // Whether some bucket of parameters holds matrices and others.
  bool mixes(const Plan& plan) const {
    return std::any_of(plan.buckets.begin(), plan.buckets.end(), [&](const Bucket& bucket) {
      if (bucket.kind != TensorKind::parameter) return false;
      const auto matrices = std::count_if(
          bucket.tensors.begin(), bucket.tensors.end(),
          [&](const BucketTensor& member) { return is_matrix(graph_.tensor(member.tensor).name); });
      return matrices > 0 && matrices < std::ssize(bucket.tensors);
    });
  }

  TrainingRun run(const Plan& plan) const {
    const auto device =
        open_simulated_device({.capacity = plan.device_peak_bytes, .executor = Executor::virtual_time});
    EngineOptions options;
    options.seed = run_seed;
    Engine engine(*device, graph_, plan, options);
    return run_engine(engine, graph_, steps, vocabulary);
  }

  const Graph graph_ = graph_with(GetParam().optimizer);
};

TEST_P(Update, IsThatOfTheUpdateWrittenOut) {
  const Plan plan = std::get<Plan>(quick_plan(graph_, Machine{}, {}, {.policy = Policy::none}));
  const auto device =
      open_simulated_device({.capacity = plan.device_peak_bytes, .executor = Executor::virtual_time});
  Engine engine(*device, graph_, plan);
  StepInputs inputs(graph_, vocabulary);
  const AdamW& of = GetParam().optimizer;
  for (std::uint64_t step = 0; step < steps; ++step) {
    const auto before = read_values(engine, graph_);
    make_step(engine, inputs);
    const auto after = read_values(engine, graph_);
    const auto number = static_cast<double>(step + 1);
    for (const Op& op : graph_.ops) {
      if (op.kernel != "adamw") continue;
      const std::string& name = graph_.tensor(op.writes[0]).name;
      const double decay = of.decayed == DecayedParameters::all || is_matrix(name) ? of.weight_decay : 0;
      expect_one_gradient(of, before, after, op);
      const std::vector<double> old = floats(before[op.writes[0]]);
      const std::vector<double> found = floats(after[op.writes[0]]);
      const std::vector<double> m = floats(after[op.writes[1]]);
      const std::vector<double> v = floats(after[op.writes[2]]);
      for (std::size_t i = 0; i < old.size(); ++i) {
        const double m_hat = m[i] / (1 - std::pow(of.beta1, number));
        const double v_hat = v[i] / (1 - std::pow(of.beta2, number));
        const double change = m_hat / (std::sqrt(v_hat) + of.epsilon) + decay * old[i];
        const double expected = old[i] - stowage::testing::learning_rate(step) * change;
        ASSERT_NEAR(found[i], expected, 1e-8 + 1e-6 * std::abs(expected)) << name << ' ' << i;
      }
    }
  }
}

TEST_P(Update, LeavesTheSameBitsOnHostAndDeviceAndInBucketsOfBothKinds) {
  const TrainingRun expected = run_evaluator(graph_, cpu_launch_table(), steps, vocabulary);
  const Machine machine;
  const Plan whole = std::get<Plan>(quick_plan(graph_, machine, {}, {.policy = Policy::none}));
  EXPECT_EQ(updates(whole, LaneRole::host), 0);
  const PlanOptions large{.bucket_bytes = 1_MiB};
  const Plan streamed = quick_least_plan(graph_, machine, large);
  EXPECT_EQ(updates(streamed, LaneRole::compute), 0);
  EXPECT_TRUE(mixes(streamed));
  for (const Plan& plan : {whole, streamed, shared_plan()}) EXPECT_TRUE(run(plan) == expected);
}

TEST(UpdateOptions, ChangeTheLosses) {
  std::vector<TrainingRun> runs;
  for (const AdamW& optimizer :
       {AdamW{}, AdamW{.beta1 = 0.8}, AdamW{.beta2 = 0.999}, AdamW{.epsilon = 1e-3}}) {
    const Graph graph = graph_with(optimizer);
    runs.push_back(run_evaluator(graph, cpu_launch_table(), steps, vocabulary));
    for (std::size_t i = 0; i + 1 < runs.size(); ++i) EXPECT_NE(runs[i].losses, runs.back().losses);
  }
}

INSTANTIATE_TEST_SUITE_P(Options, Update, ::testing::ValuesIn(cases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace stowage
