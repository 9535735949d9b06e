// Plans of a batch in micro-batches: both orders, and the choice between them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "offload/plan/decisions/extreme_choices.h"
#include "offload/plan/problem/settings.h"
#include "offload/plan/schedule/candidate.h"
#include "src/graph/cost.h"
#include "stowage/error.h"
#include "stowage/models.h"
#include "stowage/planner.h"
#include "tests/support/graph_queries.h"
#include "tests/support/random_graph.h"

namespace stowage {
namespace {

constexpr std::uint32_t parts = 4;

Graph make_gpt(std::int64_t micro_batches, std::int64_t batch = 8, DataType type = DataType::f32) {
  GraphBuilder builder(type);
  const BuiltModel model = gpt(builder, {.layers = 1,
                                         .width = 64,
                                         .heads = 2,
                                         .vocabulary = 96,
                                         .sequence = 16,
                                         .batch = batch,
                                         .micro_batches = micro_batches,
                                         .head_tokens = 32});
  return builder.finish(model.loss, {});
}

Plan made(const Graph& graph, const Machine& machine, Bytes device,
          std::optional<MicroBatchOrder> order = {}) {
  const Budget budget{device, unlimited};
  auto planned = make_plan(graph, machine, budget, {.order = order});
  if (!std::holds_alternative<Plan>(planned)) {
    ADD_FAILURE() << "nothing fits " << device << " bytes";
    return {};
  }
  Plan plan = std::get<Plan>(std::move(planned));
  EXPECT_THAT(validate(graph, plan, budget), ::testing::IsEmpty());
  EXPECT_LE(plan.device_peak_bytes, device);
  EXPECT_TRUE(!order || graph.micro_batches == 1 || plan.order == *order);
  return plan;
}

constexpr MicroBatchOrder orders[] = {MicroBatchOrder::layer_major, MicroBatchOrder::ahead(1)};

Machine with_link(double bytes_per_second) {
  Machine machine;
  machine.h2d = machine.d2h = {bytes_per_second, 1e-6, true};
  return machine;
}

struct Transfers {
  int in = 0, out = 0;
  friend bool operator==(const Transfers&, const Transfers&) = default;
};
// Returns the transfers of each bucket, by name, with the lowest choices and this LoadChoice.
std::map<std::string, Transfers> transfers(const Graph& graph, MicroBatchOrder order, TensorKind kind,
                                           LoadChoice choice) {
  const Machine machine;
  Problem problem = make_problem(graph, machine, {}, order);
  Choices choices = lowest_choices(problem);
  for (LoadChoice& load : choices.loads) load = choice;
  const Draft draft = make_lifetimes(graph, problem.analysis, problem.layout, choices);
  std::map<std::string, Transfers> found;
  for (const DraftLifetime& lifetime : draft.lifetimes) {
    const Bucket& bucket = problem.layout.buckets[lifetime.bucket];
    if (bucket.kind != kind) continue;
    found[bucket.name].in += lifetime.prefetched ? 1 : 0;
    found[bucket.name].out += lifetime.offloaded ? 1 : 0;
  }
  return found;
}

std::map<std::string, Transfers> transfers_each_unit(const Graph& graph, MicroBatchOrder order,
                                                     TensorKind kind) {
  return transfers(graph, order, kind, LoadChoice::each_unit);
}

// Weights come in once for forward and once for backward, in batch-major order for each micro-batch.
TEST(MicroBatchPlans, LayerMajorBringsWeightsInOnceForAllMicroBatches) {
  const Graph graph = make_gpt(parts);
  const auto layer = transfers_each_unit(graph, MicroBatchOrder::layer_major, TensorKind::parameter);
  const auto batch = transfers_each_unit(graph, MicroBatchOrder::ahead(1), TensorKind::parameter);
  const auto whole = transfers_each_unit(make_gpt(1), MicroBatchOrder::layer_major, TensorKind::parameter);
  for (const char* of : {"attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"}) {
    const std::string name = "h.0." + std::string(of) + ".weight";
    EXPECT_EQ(layer.at(name).in, 2) << name;
    EXPECT_EQ(whole.at(name).in, 2) << name;
    EXPECT_EQ(batch.at(name).in, 2 * static_cast<int>(parts)) << name;
  }
}

TEST(MicroBatchPlans, BatchMajorBringsSumsOfGradientsInAgain) {
  const Graph graph = make_gpt(parts);
  const auto layer = transfers_each_unit(graph, MicroBatchOrder::layer_major, TensorKind::gradient);
  const auto batch = transfers_each_unit(graph, MicroBatchOrder::ahead(1), TensorKind::gradient);
  EXPECT_EQ(layer.at("h.0.mlp.c_fc.weight.grad"), (Transfers{0, 1}));
  EXPECT_EQ(batch.at("h.0.mlp.c_fc.weight.grad"), (Transfers{parts - 1, parts}));
}

// The head's weights are the embedding's. Between the two uses of their gradient in backward lie all blocks.
TEST(MicroBatchPlans, TheGradientOfTiedWeightsWaitsOnTheHostUnlessTheyAreHeld) {
  const auto layer = MicroBatchOrder::layer_major;
  for (const std::uint32_t micro_batches : {1U, parts}) {
    const Graph graph = make_gpt(micro_batches);
    const auto at = [&](LoadChoice choice, const char* name) {
      return transfers(graph, layer, TensorKind::gradient, choice).at(name);
    };
    // One gradient of the head for each micro-batch, then one of the embedding for all of them.
    const int each = static_cast<int>(micro_batches) + 1;
    EXPECT_EQ(at(LoadChoice::each_op, "wte.weight.grad"), (Transfers{each - 1, each}));
    EXPECT_EQ(at(LoadChoice::each_unit, "wte.weight.grad"), (Transfers{1, 2}));
    EXPECT_EQ(at(LoadChoice::held, "wte.weight.grad"), (Transfers{0, 1}));
    EXPECT_EQ(at(LoadChoice::resident, "wte.weight.grad"), (Transfers{0, 0}));
    EXPECT_EQ(at(LoadChoice::each_unit, "wpe.weight.grad"), (Transfers{0, 1}));
  }
}

// Weights stream, and the step waits for the link.
TEST(MicroBatchPlans, LayerMajorWhereTheLinkBinds) {
  const Graph graph = make_gpt(parts);
  const Machine machine = with_link(1e8);
  const Bytes least = minimum_bytes(graph, machine, {.order = MicroBatchOrder::ahead(1)});
  for (Bytes budget : {least + least / 2, 2 * least}) {
    const Plan plan = made(graph, machine, budget);
    const Plan batch_major = made(graph, machine, budget, MicroBatchOrder::ahead(1));
    EXPECT_EQ(plan.order, MicroBatchOrder::layer_major);
    EXPECT_LT(plan.predicted_step_seconds, batch_major.predicted_step_seconds);
    EXPECT_LT(plan.h2d_bytes, batch_major.h2d_bytes);
  }
}

// Weights, sums of gradients and the activations of one micro-batch fit; the activations of all
// micro-batches do not.
TEST(MicroBatchPlans, BatchMajorWhereItKeepsTheActivationsThatLayerMajorCannot) {
  const Graph graph = make_gpt(parts, 64);
  const Machine machine = with_link(1e8);
  const Bytes need = need_bytes(graph, machine);
  const Plan plan = made(graph, machine, need);
  const Plan layer_major = made(graph, machine, need, MicroBatchOrder::layer_major);
  EXPECT_EQ(plan.order, MicroBatchOrder::ahead(1));
  EXPECT_LT(plan.predicted_step_seconds, layer_major.predicted_step_seconds);
  // The need is that of one micro-batch and the weights, less than that of the whole batch.
  EXPECT_LT(need, need_bytes(make_gpt(1, 64), machine));
}

TEST(MicroBatchPlans, TheMinimumIsTheSmallerOfBoth) {
  for (DataType type : {DataType::f32, DataType::bf16}) {
    const Graph graph = make_gpt(parts, 8, type);
    const Machine machine;
    const Bytes least = std::min(minimum_bytes(graph, machine, {.order = orders[0]}),
                                 minimum_bytes(graph, machine, {.order = orders[1]}));
    EXPECT_EQ(minimum_bytes(graph, machine), least);
    EXPECT_LT(least, minimum_bytes(make_gpt(1, 8, type), machine));
    made(graph, machine, least);
    const auto below = make_plan(graph, machine, {.device = least - 1});
    ASSERT_TRUE(std::holds_alternative<Infeasible>(below));
    EXPECT_EQ(std::get<Infeasible>(below).minimum, least);
  }
}

TEST(MicroBatchPlans, MoreMemoryIsNeverSlowerAndTheChoiceNeverLoses) {
  const Graph graph = make_gpt(2, 4, DataType::bf16);
  for (double rate : {1e8, 1e11}) {
    const Machine machine = with_link(rate);
    const Bytes least = minimum_bytes(graph, machine), need = need_bytes(graph, machine);
    double before = std::numeric_limits<double>::infinity();
    for (int i = 0; i <= 3; ++i) {
      const Bytes budget = least + (need - least) * static_cast<Bytes>(i) / 3;
      const Plan plan = made(graph, machine, budget);
      EXPECT_LE(plan.predicted_step_seconds, before * (1 + PlannerSettings{}.close_enough));
      EXPECT_GE(plan.predicted_step_seconds, plan.lower_bound_seconds);
      before = plan.predicted_step_seconds;
    }
  }
}

TEST(MicroBatchPlans, RandomGraphsPlanIntoValidPlansInBothOrders) {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(seed);
    const std::uint32_t micro_batches = 2 + static_cast<std::uint32_t>(seed % 2);
    const Graph graph = testing::random_graph(
        seed,
        {.max_units = 3, .micro_batches = micro_batches, .gradient_groups = micro_batches == 2 ? 2U : 1U});
    const Machine machine = testing::random_machine(seed);
    for (MicroBatchOrder order : orders) {
      const Bytes least = minimum_bytes(graph, machine, {.order = order});
      made(graph, machine, least, order);
      made(graph, machine, testing::random_budget(seed, least, 2 * least), order);
    }
  }
}

// Returns the plan with launch `first` and the next launch exchanged; none if that is not possible.
std::optional<Plan> exchanged(Plan plan, InstructionId first) {
  const auto is_launch = [](const Instruction& i) { return i.kind == InstructionKind::launch; };
  if (!is_launch(plan.instructions[first])) return {};
  for (InstructionId second = first + 1; second < plan.instructions.size(); ++second) {
    if (plan.instructions[second].lane != LaneRole::compute) continue;
    if (!is_launch(plan.instructions[second])) return {};
    std::swap(plan.instructions[first].op, plan.instructions[second].op);
    std::swap(plan.instructions[first].uses, plan.instructions[second].uses);
    return plan;
  }
  return {};
}

bool reads_from(const Op& later, const Op& earlier) {
  return std::any_of(later.reads.begin(), later.reads.end(), [&](TensorId id) {
    return std::find(earlier.writes.begin(), earlier.writes.end(), id) != earlier.writes.end();
  });
}

TEST(MicroBatchPlans, OpsBeforeWhatTheyReadAreRejectedInBothOrders) {
  const Graph graph = make_gpt(2, 4);
  for (MicroBatchOrder order : orders) {
    const Plan plan = made(graph, {}, minimum_bytes(graph, {}, {.order = order}), order);
    int tried = 0;
    for (InstructionId id = 0; id < plan.instructions.size(); id += 3) {
      const std::optional<Plan> broken = exchanged(plan, id);
      if (!broken) continue;
      const OpId second = broken->instructions[id].op;
      if (!reads_from(graph.op(second), graph.op(plan.instructions[id].op))) continue;
      ++tried;
      EXPECT_THAT(validate(graph, *broken, {}), ::testing::Contains(::testing::HasSubstr("is out of order")));
    }
    EXPECT_GT(tried, 5);
  }
}

// Each micro-batch has its own turn from forward to backward.
TEST(MicroBatchPlans, UnitsThatTurnAreNotReplayed) {
  const Graph graph = make_gpt(2);
  const auto head = [&](std::uint32_t part) {
    return graph.op(test::op_named(graph, "micro." + std::to_string(part) + ".ln_f")).unit;
  };
  const RecomputeAnalysis layer = analyse_recompute(graph, MicroBatchOrder::layer_major);
  const RecomputeAnalysis batch = analyse_recompute(graph, MicroBatchOrder::ahead(1));
  for (std::uint32_t part : {0U, 1U}) {
    EXPECT_TRUE(layer.units[head(part)].ops.empty());
    EXPECT_TRUE(batch.units[head(part)].ops.empty());
  }
}

TEST(MicroBatchPlans, TheOrderSurvivesJson) {
  const Plan plan = made(make_gpt(2), {}, unlimited, MicroBatchOrder::ahead(1));
  EXPECT_EQ(plan_from_json(to_json(plan)), plan);
}

// Of large micro-batches, whose activations outweigh the gradients that backward leaves.
TEST(MicroBatchPlans, EachForwardAheadKeepsOneMoreMicroBatchsActivations) {
  const Graph graph = make_gpt(parts, 64);
  Bytes before = 0;
  for (std::uint32_t forwards = 1; forwards <= parts; ++forwards) {
    const auto planned =
        make_plan(graph, {}, {}, {.policy = Policy::none, .order = MicroBatchOrder::ahead(forwards)});
    const Plan& plan = std::get<Plan>(planned);
    EXPECT_EQ(plan.order, MicroBatchOrder::ahead(forwards));
    EXPECT_THAT(validate(graph, plan, {}), ::testing::IsEmpty());
    EXPECT_GT(plan.device_peak_bytes, before + before / 8) << forwards;
    before = plan.device_peak_bytes;
  }
}

TEST(MicroBatchPlans, AnOrderAheadIsPlannedWhereItIsNamed) {
  const Graph graph = make_gpt(parts);
  const Machine machine = with_link(1e9);
  for (const std::uint32_t forwards : {2U, parts}) {
    const auto order = MicroBatchOrder::ahead(forwards);
    Planner planner(graph, machine, {.order = order});
    const Bytes least = planner.minimum_bytes(), need = planner.need_bytes();
    for (const Bytes budget : {least, (least + need) / 2, need}) {
      const Plan plan = made(graph, machine, budget, order);
      EXPECT_LE(plan.lower_bound_seconds, plan.predicted_step_seconds * (1 + 1e-9)) << budget;
    }
    EXPECT_TRUE(std::holds_alternative<Infeasible>(planner.answer({least - 1, unlimited}).outcome));
  }
  for (const std::uint32_t forwards : {0U, parts + 1})
    EXPECT_THROW(make_plan(graph, machine, {}, {.order = MicroBatchOrder::ahead(forwards)}), InvalidInput);
}

// Its range's weights come in once for all micro-batches, and gradients leave once.
TEST(MicroBatchPlans, ARangeIsLoadedOnceForAllMicroBatches) {
  Graph graph = make_gpt(parts);
  const auto order = MicroBatchOrder::ahead(2);
  const auto apart = transfers_each_unit(graph, order, TensorKind::parameter);
  graph.range_begins = {1, 2};
  check(graph);
  const auto weights = transfers_each_unit(graph, order, TensorKind::parameter);
  const auto gradients = transfers_each_unit(graph, order, TensorKind::gradient);
  int loaded_once = 0;
  for (const auto& [name, of] : weights) {
    EXPECT_LE(of.in, 3) << name;  // the tied table is in the first and the last range
    EXPECT_GE(apart.at(name).in, of.in) << name;
    loaded_once += of.in == 1 ? 1 : 0;
  }
  EXPECT_GT(loaded_once, 0) << "in the last range both phases share a load";
  for (const auto& [name, of] : gradients) EXPECT_LE(of.in, 1) << name;
}

TEST(MicroBatchPlans, RangesArePlannedBetweenTheirBounds) {
  Graph graph = make_gpt(parts);
  const Machine machine = with_link(1e9);
  for (const auto& begins : std::vector<std::vector<std::uint32_t>>{{2}, {1, 3}}) {
    graph.range_begins = begins;
    check(graph);
    for (const std::uint32_t forwards : {1U, 2U}) {
      const auto order = MicroBatchOrder::ahead(forwards);
      Planner planner(graph, machine, {.order = order});
      const Bytes least = planner.minimum_bytes(), need = planner.need_bytes();
      for (const Bytes budget : {least, (least + need) / 2}) {
        const Plan plan = made(graph, machine, budget, order);
        EXPECT_EQ(plan.order, order);
        EXPECT_LE(plan.lower_bound_seconds, plan.predicted_step_seconds * (1 + 1e-9)) << budget;
      }
    }
    EXPECT_EQ(made(graph, machine, unlimited, {}).order, MicroBatchOrder::layer_major);
    EXPECT_THROW(make_plan(graph, machine, {}, {.order = MicroBatchOrder::ahead(parts + 1)}), InvalidInput);
  }
}

// With so slow a host the step is little more than its updates and what cannot run beside them.
TEST(MicroBatchPlans, TheBoundOfRangesIsNearPlansThatWaitForUpdates) {
  Graph graph = make_gpt(parts);
  graph.range_begins = {2};
  Machine machine = with_link(1e12);
  machine.host_bytes_per_second *= 0.1;
  const PlanOptions options{.order = MicroBatchOrder::ahead(1)};
  const Plan plan = made(graph, machine, minimum_bytes(graph, machine, options), options.order);
  EXPECT_LE(plan.lower_bound_seconds, plan.predicted_step_seconds * (1 + 1e-9));
  EXPECT_GE(plan.lower_bound_seconds, plan.predicted_step_seconds * 0.75);
}

// Gradients are whole in the last micro-batch's backward: what the host updates then hides behind nothing but
// that and the first forwards. Here all updates take as long as all ops.
TEST(MicroBatchPlans, TheBoundOfAnOrderAheadKnowsThatGradientsComeLate) {
  const Graph graph = make_gpt(parts);
  Machine machine = with_link(1e12);
  double ops = 0, updates = 0;
  for (const Op& op : graph.ops)
    (op.phase == Phase::update ? updates : ops) +=
        op.phase == Phase::update ? host_seconds(op, machine) : op_seconds(op, machine);
  machine.host_bytes_per_second *= updates / ops;
  const PlanOptions options{.order = MicroBatchOrder::ahead(2)};
  const Bytes least = minimum_bytes(graph, machine, options);
  const Plan plan = made(graph, machine, least, options.order);
  EXPECT_GT(plan.lower_bound_seconds, 1.4 * ops);
  EXPECT_LE(plan.lower_bound_seconds, plan.predicted_step_seconds * (1 + 1e-9));
}

}  // namespace
}  // namespace stowage
