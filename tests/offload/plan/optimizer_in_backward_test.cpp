// Plans whose host updates are made for good before the gate: what they save, and what they may not do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "offload/plan/decisions/extreme_choices.h"
#include "offload/plan/schedule/candidate.h"
#include "offload/plan/schedule/gradient_ring.h"
#include "src/graph/cost.h"
#include "stowage/models.h"
#include "stowage/planner.h"
#include "tests/offload/plan/validate/small_plans.h"
#include "tests/support/draws.h"
#include "tests/support/expect_refused.h"
#include "tests/support/random_graph.h"

namespace stowage {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

Graph gpt_of(std::int64_t layers, DataType type, double clip = 0, std::int64_t micro_batches = 1,
             std::int64_t vocabulary = 64, const ChunkGrid& grid = {}) {
  GraphBuilder builder(type);
  const BuiltModel model = gpt(builder, {.layers = layers,
                                         .width = 32,
                                         .heads = 2,
                                         .vocabulary = vocabulary,
                                         .sequence = 32,
                                         .batch = 4,
                                         .micro_batches = micro_batches});
  AdamW optimizer;
  optimizer.clip = clip;
  optimizer.grid = grid;
  return builder.finish(model.loss, optimizer);
}
// Half of its parameters are the token table, which is cut into 16 slices.
Graph gpt_with_a_table_in_slices() {
  return gpt_of(4, DataType::bf16, 0, 1, 1536, {.slice_bytes = 6_KiB, .most_slices = 16, .least_slices = 4});
}

PlanOptions in_backward() {
  PlanOptions options;
  options.optimizer_in_backward = true;
  return options;
}

bool is_early(const Plan& plan, InstructionId id) {
  return id < plan.gate && plan.instructions[id].kind == InstructionKind::commit;
}
std::int64_t early_updates(const Plan& plan) {
  std::int64_t count = 0;
  for (InstructionId id = 0; id < plan.instructions.size(); ++id) count += is_early(plan, id);
  return count;
}
std::int64_t host_updates(const Plan& plan) {
  return std::count_if(plan.instructions.begin(), plan.instructions.end(), [](const Instruction& each) {
    return each.kind == InstructionKind::commit && runs_on_host(each);
  });
}
// Returns the number of prefetches of each bucket.
std::vector<int> prefetches(const Plan& plan) {
  std::vector<int> counts(plan.buckets.size(), 0);
  for (const Instruction& each : plan.instructions)
    if (each.kind == InstructionKind::prefetch) ++counts[plan.lifetimes[each.lifetime].bucket];
  return counts;
}
Bytes ring_gradients(const Plan& plan) {
  Bytes bytes = 0;
  for (const Bucket& bucket : plan.buckets) bytes += bucket.in_ring() ? bucket.bytes : 0;
  return bytes;
}

std::string joined(const std::vector<std::string>& findings) {
  std::string all;
  for (const std::string& each : findings) all += each + "\n";
  return all;
}

// Returns choices with all updates on the host and early. A parameter in slices stays from its first use to
// its last, so that the sum of its gradients does not rest on the host.
Choices all_early(const Problem& problem) {
  Choices choices = lowest_choices(problem);
  choices.speculated.assign(problem.layout.buckets.size(), 1);
  for (const BucketId id : problem.layout.parameters)
    if (!problem.layout.slices[id].empty()) choices.loads[id] = LoadChoice::held;
  return choices;
}

// Returns the serial plan of these choices, which takes the least device memory.
Plan plan_with_all_early(const Graph& graph) {
  const Machine machine;
  const Problem problem = make_problem(graph, machine, {.target_bytes = 0}, MicroBatchOrder::layer_major, {},
                                       EarlyUpdates::final);
  const Draft draft = Sketcher(problem, all_early(problem)).serial().draft;
  Plan plan = complete(problem, draft);
  EXPECT_EQ(plan.host_bytes, host_bytes(problem, draft));
  EXPECT_THAT(validate(graph, plan, {}), IsEmpty());
  return plan;
}

TEST(OptimizerInBackward, HasAllGradientsInASmallRing) {
  const Plan plan = plan_with_all_early(gpt_of(12, DataType::bf16));
  EXPECT_TRUE(plan.optimizer_in_backward);
  EXPECT_EQ(early_updates(plan), host_updates(plan));
  EXPECT_EQ(plan.undo_bytes, 0U);
  const std::vector<int> brought = prefetches(plan);
  Bytes all = 0, outside = 0;
  for (BucketId id = 0; id < plan.buckets.size(); ++id) {
    const Bucket& bucket = plan.buckets[id];
    const bool leaves_once = bucket.kind == TensorKind::gradient && bucket.on_host() && brought[id] == 0;
    EXPECT_EQ(bucket.in_ring(), leaves_once) << bucket.name;
    if (!bucket.on_host()) continue;
    (bucket.in_ring() ? all : outside) += bucket.bytes;
  }
  EXPECT_EQ(plan.host_bytes, outside + plan.ring_bytes);
  // Small gradients take whole units of alignment.
  EXPECT_LE(plan.ring_bytes, all / ring_part + all / 50);
  EXPECT_GT(plan.ring_bytes, all / (2 * ring_part));
}

// Returns the host bytes of weights, moments and gradients.
Bytes host_bytes_of_weights(const Plan& plan) {
  Bytes bytes = plan.ring_bytes;
  for (const Bucket& bucket : plan.buckets) {
    const bool of_weights =
        bucket.kind == TensorKind::parameter || bucket.kind == TensorKind::optimizer_state;
    if ((of_weights || bucket.kind == TensorKind::gradient) && bucket.on_host() && !bucket.in_ring())
      bytes += bucket.bytes;
  }
  return bytes;
}

TEST(OptimizerInBackward, NeedsAtMostTwelveAndAHalfBytesForAParameter) {
  for (const Graph& graph : {gpt_of(24, DataType::bf16), gpt_with_a_table_in_slices()}) {
    Bytes parameters = 0;
    for (const Tensor& tensor : graph.tensors)
      if (tensor.kind == TensorKind::parameter) parameters += static_cast<Bytes>(tensor.elements());
    const Bytes bytes = host_bytes_of_weights(plan_with_all_early(graph));
    EXPECT_LE(2 * bytes, 25 * parameters);
    EXPECT_GE(bytes, 12 * parameters);
  }
}

// Each slice of the table's gradient leaves by itself. From the third on a slice waits for the update by
// another slice whose bytes in the ring it takes.
TEST(OptimizerInBackward, SendsATableBySlices) {
  const Graph graph = gpt_with_a_table_in_slices();
  const Plan plan = plan_with_all_early(graph);
  const BucketId table = testing::bucket_named(plan, "wte.weight.grad");
  const Bytes slice = 6_KiB, span = plan.buckets[table].place_in(MemoryId::host)->ring_span;
  ASSERT_EQ(span % slice, 0U);
  ASSERT_GE(span, 2 * slice);
  EXPECT_LT(span, plan.buckets[table].bytes);
  Bytes left = 0;
  for (const Instruction& each : plan.instructions) {
    if (each.kind != InstructionKind::offload || plan.lifetimes[each.lifetime].bucket != table) continue;
    EXPECT_EQ(each.part, (ByteRange{left, left + slice}));
    const bool waits = std::any_of(each.waits.begin(), each.waits.end(),
                                   [&](const Wait& wait) { return is_early(plan, wait.instruction); });
    EXPECT_TRUE(waits || left < span) << left;
    left += slice;
  }
  EXPECT_EQ(left, plan.buckets[table].bytes);
}

// Plans with the host memory that the planner names, and with less of it.
TEST(OptimizerInBackward, FitsIntoLessHostMemory) {
  const Graph graph = gpt_of(4, DataType::bf16);
  const Machine machine;
  const Bytes device = minimum_bytes(graph, machine);
  const auto least = [&](const PlanOptions& options) {
    return std::get<Infeasible>(make_plan(graph, machine, {device, 1}, options)).minimum;
  };
  const Bytes with = least(in_backward()), without = least({});
  EXPECT_LT(with, without);
  const auto plan = make_plan(graph, machine, {device, with}, in_backward());
  ASSERT_TRUE(std::holds_alternative<Plan>(plan));
  EXPECT_THAT(validate(graph, std::get<Plan>(plan), {device, with}), IsEmpty());
  EXPECT_TRUE(
      std::holds_alternative<Infeasible>(make_plan(graph, machine, {device, with * 9 / 10}, in_backward())));
  EXPECT_TRUE(std::holds_alternative<Infeasible>(make_plan(graph, machine, {device, with}, {})));
}

// A sum that rests on the host between micro-batches keeps bytes of its own.
TEST(OptimizerInBackward, LeavesRestingSumsOutOfTheRing) {
  const Plan plan = plan_with_all_early(gpt_of(4, DataType::f32, 0, 4));
  EXPECT_EQ(early_updates(plan), host_updates(plan));
  const std::vector<int> brought = prefetches(plan);
  int resting = 0;
  for (BucketId id = 0; id < plan.buckets.size(); ++id) {
    if (plan.buckets[id].kind != TensorKind::gradient || brought[id] == 0) continue;
    ++resting;
    EXPECT_FALSE(plan.buckets[id].in_ring());
  }
  EXPECT_GT(resting, 0);
}

void do_not_clip(Graph& graph) {
  for (Op& op : graph.ops)
    if (op.kernel == "clip") op.attributes["clip"] = 0.0;
}

TEST(OptimizerInBackward, HasValidPlansOfAnyGraphInAnyMemory) {
  std::int64_t early = 0;
  int shared = 0;
  const int graphs = testing::draws(24, 3);
  for (int draw = 0; draw < graphs; ++draw) {
    SCOPED_TRACE(draw);
    const auto seed = static_cast<std::uint64_t>(draw);
    testing::RandomGraphOptions of{.max_units = 4};
    of.micro_batches = draw % 4 == 3 ? 2 : 1;
    of.gradient_groups = draw % 8 == 7 ? 2 : 1;
    if (draw % 3 == 1)
      of.grid = {.slice_bytes = 256, .most_slices = 4, .least_slices = 2, .least_share = 0.05};
    if (draw % 4 == 2) of.share = {0, 2};
    Graph graph = testing::random_graph(seed, of);
    do_not_clip(graph);
    const Machine machine = testing::machine_with_peers(seed);
    const Bytes least = minimum_bytes(graph, machine), need = need_bytes(graph, machine);
    const Bytes device = testing::random_budget(seed, least, need);
    Planner planner(graph, machine, in_backward());
    const auto fewest = planner.answer({device, 1}).outcome;
    for (const Bytes host :
         {unlimited,
          std::holds_alternative<Infeasible>(fewest) ? std::get<Infeasible>(fewest).minimum : Bytes{1}}) {
      const auto outcome = planner.answer({device, host}).outcome;
      ASSERT_TRUE(std::holds_alternative<Plan>(outcome));
      const Plan& plan = std::get<Plan>(outcome);
      EXPECT_EQ(joined(validate(graph, plan, {device, host})), "");
      EXPECT_EQ(plan.optimizer_in_backward, early_updates(plan) > 0);
      EXPECT_EQ(plan_from_json(to_json(plan)), plan);
      early += early_updates(plan);
      shared += plan.ring_bytes < ring_gradients(plan);
    }
  }
  EXPECT_GT(early, graphs);
  EXPECT_GT(shared, 0);
}

TEST(OptimizerInBackward, SendsBySlicesInValidPlansOfAnyGraph) {
  int by_slices = 0;
  const int graphs = testing::draws(48, 6);
  for (int draw = 0; draw < graphs; ++draw) {
    SCOPED_TRACE(draw);
    const auto seed = static_cast<std::uint64_t>(draw);
    testing::RandomGraphOptions of{.max_units = 4};
    of.micro_batches = draw % 4 == 3 ? 2 : 1;
    of.grid = {.slice_bytes = 256, .most_slices = 2 + draw % 7, .least_slices = 2, .least_share = 0.05};
    Graph graph = testing::random_graph(seed, of);
    do_not_clip(graph);
    const Machine machine = testing::any_machine(seed);
    const Problem problem = make_problem(graph, machine, {.target_bytes = 0}, MicroBatchOrder::layer_major,
                                         {}, EarlyUpdates::final);
    const Sketcher sketcher(problem, all_early(problem));
    const Bytes serial = sketcher.serial_bytes();
    for (const Sketch& sketch : {sketcher.serial(), sketcher.within(serial + serial / 2, 0)}) {
      const Plan plan = complete(problem, sketch.draft);
      EXPECT_EQ(joined(validate(graph, plan, {})), "");
      EXPECT_EQ(plan_from_json(to_json(plan)), plan);
      by_slices += std::any_of(plan.buckets.begin(), plan.buckets.end(), [](const Bucket& bucket) {
        return bucket.in_ring() && bucket.ring_bytes() < bucket.bytes;
      });
    }
  }
  EXPECT_GT(by_slices, graphs / 2);
}

TEST(OptimizerInBackward, IsRefusedWhereAStepMayHaveToBeLeftOut) {
  const auto refuse = [](const Graph& graph, Policy policy, const char* words) {
    PlanOptions options = in_backward();
    options.policy = policy;
    test::expect_refused([&] { make_plan(graph, Machine{}, {}, options); }, words);
  };
  refuse(gpt_of(1, DataType::f32, 1.0), Policy::automatic, "gradients are clipped");
  refuse(gpt_of(1, DataType::f32, 1.0), Policy::automatic,
         "switch clipping off (AdamW::clip 0; trainers: --clip 0)");
  refuse(gpt_of(1, DataType::f16), Policy::automatic, "in fp16 a step whose gradients overflow is left out");
  refuse(gpt_of(1, DataType::f32), Policy::zero_offload, "with the policy zero-offload");
}

// Returns the first offload into bytes of the ring that another gradient had before.
InstructionId reusing_offload(const Plan& plan) {
  for (InstructionId id = 0; id < plan.gate; ++id)
    for (const Wait& wait : plan.instructions[id].waits)
      if (plan.instructions[id].kind == InstructionKind::offload && wait.steps_back == 0 &&
          is_early(plan, wait.instruction))
        return id;
  ADD_FAILURE() << "no bytes of the ring are used twice";
  return 0;
}

// Moves the update that the offload waits for behind the offload.
void overwrite(Plan& plan, InstructionId offload) {
  const auto before =
      std::find_if(plan.instructions[offload].waits.begin(), plan.instructions[offload].waits.end(),
                   [&](const Wait& wait) { return is_early(plan, wait.instruction); });
  testing::move_instruction(plan, before->instruction, offload);
  std::erase_if(plan.instructions[offload - 1].waits,
                [&](const Wait& wait) { return wait.instruction == offload; });
  plan.instructions[offload].waits.push_back({offload - 1, 0});
}

struct Break {
  std::string name;
  std::function<void(Graph&, Plan&)> apply;
  std::string words;
};
void PrintTo(const Break& way, std::ostream* out) { *out << way.name; }

class BrokenRing : public ::testing::TestWithParam<Break> {};

TEST_P(BrokenRing, IsRejectedForTheRightReason) {
  Graph graph = gpt_of(4, DataType::bf16);
  Plan plan = plan_with_all_early(graph);
  GetParam().apply(graph, plan);
  EXPECT_THAT(joined(validate(graph, plan, {})), HasSubstr(GetParam().words));
}

std::vector<BucketId> in_ring(const Plan& plan) {
  std::vector<BucketId> ids;
  for (BucketId id = 0; id < plan.buckets.size(); ++id)
    if (plan.buckets[id].in_ring()) ids.push_back(id);
  return ids;
}

INSTANTIATE_TEST_SUITE_P(
    Ways, BrokenRing,
    ::testing::Values(
        Break{"offload_before_the_update",
              [](Graph&, Plan& plan) {
                std::vector<Wait>& waits = plan.instructions[reusing_offload(plan)].waits;
                std::erase_if(waits, [&](const Wait& wait) { return is_early(plan, wait.instruction); });
              },
              "both touch bytes of the gradient ring (gradient lost)"},
        Break{"two_gradients_at_once",
              [](Graph&, Plan& plan) {
                for (const BucketId id : in_ring(plan)) plan.buckets[id].places[0].ring_offset = 0;
              },
              "both touch bytes of the gradient ring (gradient lost)"},
        Break{"speculated_too",
              [](Graph& graph, Plan& plan) {
                for (const Wait& wait : plan.instructions[reusing_offload(plan)].waits) {
                  Instruction& update = plan.instructions[wait.instruction];
                  if (!is_early(plan, wait.instruction) || plan.undo_bytes > 0) continue;
                  plan.undo_bytes = undo_bytes(graph, graph.op(update.op));
                  update.kind = InstructionKind::speculate;
                  update.part = {0, plan.undo_bytes};
                }
              },
              "speculates with the optimizer in backward"},
        Break{"overwritten", [](Graph&, Plan& plan) { overwrite(plan, reusing_offload(plan)); },
              "gradient lost: the value is not there"},
        Break{"past_the_ring",
              [](Graph&, Plan& plan) {
                plan.buckets[in_ring(plan)[0]].places[0].ring_offset = plan.ring_bytes;
              },
              "of the gradient ring of"},
        Break{"unaligned",
              [](Graph&, Plan& plan) { *plan.buckets[in_ring(plan)[0]].places[0].ring_offset += 64; },
              "of the gradient ring of"},
        Break{"of_a_parameter",
              [](Graph&, Plan& plan) {
                for (Bucket& bucket : plan.buckets)
                  if (bucket.kind == TensorKind::parameter) bucket.places[0].ring_offset = 0;
              },
              "has bytes of the gradient ring, which are not for it"},
        Break{"more_bytes", [](Graph&, Plan& plan) { plan.ring_bytes += 256; },
              "the plan declares host_bytes"},
        Break{"without_the_option",
              [](Graph&, Plan& plan) {
                plan.optimizer_in_backward = false;
                plan.ring_bytes = 0;
                for (const BucketId id : in_ring(plan)) plan.buckets[id].places[0].ring_offset.reset();
              },
              "changes weights before the gate"},
        Break{"ring_without_the_option", [](Graph&, Plan& plan) { plan.optimizer_in_backward = false; },
              "has bytes of the gradient ring, which are not for it"},
        Break{"before_its_gradient",
              [](Graph&, Plan& plan) {
                InstructionId id = 0;
                while (!is_early(plan, id)) ++id;
                plan.instructions[id].waits.clear();
              },
              "(gradient lost)"},
        Break{"clipping",
              [](Graph& graph, Plan&) {
                for (Op& op : graph.ops)
                  if (op.kernel == "clip") op.attributes["clip"] = 1.0;
              },
              "makes updates before the gate for good, but gradients are clipped"}),
    [](const auto& each) { return each.param.name; });

class BrokenSlices : public ::testing::TestWithParam<Break> {};

TEST_P(BrokenSlices, AreRejectedForTheRightReason) {
  Graph graph = gpt_with_a_table_in_slices();
  Plan plan = plan_with_all_early(graph);
  GetParam().apply(graph, plan);
  EXPECT_THAT(joined(validate(graph, plan, {})), HasSubstr(GetParam().words));
}

BucketPlace& place_of_table(Plan& plan) {
  return plan.buckets[testing::bucket_named(plan, "wte.weight.grad")].places[0];
}
// Returns the offload of a slice of the table.
InstructionId table_offload(const Plan& plan, int slice) {
  return testing::transfer_of(plan, InstructionKind::offload, "wte.weight.grad", slice);
}
// Returns the offload of the first slice that takes the ring's bytes of another slice.
InstructionId reusing_slice(Plan& plan) {
  return table_offload(plan, static_cast<int>(place_of_table(plan).ring_span / 6_KiB));
}

INSTANTIATE_TEST_SUITE_P(
    Ways, BrokenSlices,
    ::testing::Values(
        Break{"offload_before_the_update",
              [](Graph&, Plan& plan) {
                std::erase_if(plan.instructions[reusing_slice(plan)].waits,
                              [&](const Wait& wait) { return is_early(plan, wait.instruction); });
              },
              "both touch bytes of the gradient ring (gradient lost)"},
        Break{"first_offload_before_the_updates_of_others",
              [](Graph&, Plan& plan) {
                std::erase_if(plan.instructions[table_offload(plan, 0)].waits,
                              [&](const Wait& wait) { return is_early(plan, wait.instruction); });
              },
              "both touch bytes of the gradient ring (gradient lost)"},
        Break{"overwritten", [](Graph&, Plan& plan) { overwrite(plan, reusing_slice(plan)); },
              "gradient lost: the value is not there"},
        Break{"as_a_whole", [](Graph&, Plan& plan) { plan.instructions[table_offload(plan, 0)].part = {}; },
              "of which the gradient ring has not all at once"},
        Break{"device_bytes_given_back_too_early",
              [](Graph&, Plan& plan) {
                const InstructionId first = table_offload(plan, 0);
                plan.lifetimes[plan.instructions[first].lifetime].end = first;
              },
              "is not ordered before that"},
        Break{"in_fewer_bytes", [](Graph&, Plan& plan) { place_of_table(plan).ring_span -= 6_KiB; },
              "both touch bytes of the gradient ring (gradient lost)"},
        Break{"of_an_odd_span", [](Graph&, Plan& plan) { place_of_table(plan).ring_span -= 11; },
              "of the gradient ring of"},
        Break{"past_the_ring",
              [](Graph&, Plan& plan) { place_of_table(plan).ring_span = plan.ring_bytes + 6_KiB; },
              "of the gradient ring of"}),
    [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace stowage
