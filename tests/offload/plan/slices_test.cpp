// Parameters in slices, from buckets to plans: what moves, what waits for what, and what the validator
// refuses.
#include <gmock/gmock.h>

#include <functional>
#include <set>

#include "offload/plan/bound/bound.h"
#include "offload/plan/schedule/candidate.h"
#include "stowage/error.h"
#include "stowage/planner.h"
#include "tests/offload/plan/older_plan_json.h"
#include "tests/offload/plan/validate/made_plans.h"
#include "tests/support/chain_graph.h"
#include "tests/support/draws.h"
#include "tests/support/random_graph.h"
#include "tests/support/sliced_plans.h"

namespace stowage {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using namespace stowage::testing;

constexpr Bytes table_bytes = 256 * 16 * 4, slice_bytes = table_bytes / slices_of_table;

// Parts of a bucket that are moved in a step.
std::vector<ByteRange> moved(const Plan& plan, InstructionKind kind, const std::string& bucket) {
  std::vector<ByteRange> parts;
  for (const Instruction& instruction : plan.instructions)
    if (instruction.kind == kind && plan.lifetimes[instruction.lifetime].bucket == find_bucket(plan, bucket))
      parts.push_back(moved_bytes(plan, instruction));
  return parts;
}
ByteRange slice(std::uint32_t first, std::uint32_t last) { return {first * slice_bytes, last * slice_bytes}; }

TEST(Slices, HaveABucketOfStateEachAndShareThatOfTheirParameter) {
  const Graph graph = sliced_gpt();
  const Plan plan = plan_in_slices(graph, {}, 1);
  const Bucket& table = plan.buckets[find_bucket(plan, "wte.weight")];
  ASSERT_EQ(table.tensors.size(), 1U + slices_of_table);
  EXPECT_EQ(table.tensors[3], (BucketTensor{find_tensor(graph, "wte.weight.slice2"), 2 * slice_bytes}));
  EXPECT_EQ(table.bytes, table_bytes);
  EXPECT_EQ(plan.buckets[find_bucket(plan, "wte.weight.adam.slice2")].bytes, 2 * slice_bytes);
  EXPECT_EQ(plan.buckets[find_bucket(plan, "wte.weight.adam.slice0")].residency, Residency::resident);
  EXPECT_EQ(plan.buckets[find_bucket(plan, "wte.weight.adam.slice1")].residency, Residency::host);
}

TEST(Slices, OnlyThoseOfTheHostAreMoved) {
  const Graph graph = sliced_gpt();
  const Plan plan = plan_in_slices(graph, {}, 2);
  EXPECT_THAT(moved(plan, InstructionKind::prefetch, "wte.weight"), ElementsAre(slice(2, 3), slice(3, 4)));
  EXPECT_THAT(moved(plan, InstructionKind::offload, "wte.weight.grad"), ElementsAre(slice(2, 4)));
  const Plan all = plan_in_slices(graph, {}, slices_of_table);
  EXPECT_THAT(moved(all, InstructionKind::prefetch, "wte.weight"), IsEmpty());
  EXPECT_THAT(moved(all, InstructionKind::offload, "wte.weight.grad"), IsEmpty());
}

// With the least memory nothing is resident: the table comes slice by slice all the same.
TEST(Slices, OfAStreamedParameterComeOneByOne) {
  const Graph graph = sliced_gpt();
  const Plan plan = std::get<Plan>(make_plan(graph, {}, {.device = minimum_bytes(graph, {})}));
  const std::vector<ByteRange> parts = moved(plan, InstructionKind::prefetch, "wte.weight");
  ASSERT_EQ(parts.size() % slices_of_table, 0U);
  EXPECT_THAT((std::vector(parts.begin(), parts.begin() + slices_of_table)),
              ElementsAre(slice(0, 1), slice(1, 2), slice(2, 3), slice(3, 4)));
}

// Each waits for its own update of the step before, not for all of them.
TEST(Slices, ArePrefetchedWhenTheHostHasUpdatedThem) {
  const Graph graph = sliced_gpt();
  const Plan plan = plan_in_slices(graph, {}, 1);
  std::set<OpId> waited;
  for (const Instruction& instruction : plan.instructions) {
    if (instruction.kind != InstructionKind::prefetch || instruction.part == ByteRange{}) continue;
    for (const Wait& wait : instruction.waits)
      if (wait.steps_back == 1) waited.insert(plan.instructions[wait.instruction].op);
  }
  EXPECT_EQ(waited,
            (std::set{find_op(graph, "wte.weight.adamw.slice1"), find_op(graph, "wte.weight.adamw.slice2"),
                      find_op(graph, "wte.weight.adamw.slice3")}));
}

TEST(Slices, EveryNumberOnTheDeviceIsAValidPlan) {
  for (DataType type : {DataType::f32, DataType::bf16})
    for (std::int64_t micro_batches : {1, 2}) {
      const Graph graph = sliced_gpt(type, micro_batches);
      for (std::uint32_t on_device = 0; on_device <= slices_of_table; ++on_device)
        for (Bytes cap : {Bytes{0}, 64_KiB, unlimited}) {
          const Plan plan = plan_in_slices(graph, {}, on_device, cap);
          EXPECT_EQ(joined(validate(graph, plan, {})), "") << on_device << " with cap " << cap;
          EXPECT_EQ(plan_from_json(to_json(plan)), plan);
        }
    }
}

TEST(Slices, MoreOfThemOnTheDeviceIsLessToMove) {
  const Graph graph = sliced_gpt();
  for (std::uint32_t on_device = 1; on_device < slices_of_table; ++on_device) {
    const Plan plan = plan_in_slices(graph, {}, on_device), more = plan_in_slices(graph, {}, on_device + 1);
    EXPECT_EQ(plan.h2d_bytes - more.h2d_bytes, slice_bytes);
    EXPECT_EQ(plan.d2h_bytes - more.d2h_bytes, slice_bytes);
    EXPECT_GE(more.live_peak_bytes, plan.live_peak_bytes + 2 * slice_bytes);
  }
}

// Some budget is best served by a part of the table, and no plan is faster than the bound.
TEST(Slices, APlanDividesAParameterWhereThatIsBest) {
  const Graph graph = sliced_gpt();
  Machine machine;
  machine.host_bytes_per_second = 1e8;
  const Bytes minimum = minimum_bytes(graph, machine), need = need_bytes(graph, machine);
  bool divided = false;
  for (int i = 0; i <= 12; ++i) {
    const Bytes budget = minimum + (need - minimum) * static_cast<Bytes>(i) / 12;
    const Plan plan = std::get<Plan>(make_plan(graph, machine, {.device = budget}));
    EXPECT_EQ(joined(validate(graph, plan, {.device = budget})), "") << budget;
    EXPECT_LE(plan.lower_bound_seconds, plan.predicted_step_seconds * (1 + 1e-9));
    const bool has_some =
        plan.buckets[find_bucket(plan, "wte.weight.adam.slice0")].residency == Residency::resident;
    const bool has_all =
        plan.buckets[find_bucket(plan, "wte.weight.adam.slice3")].residency == Residency::resident;
    divided |= has_some && !has_all;
  }
  EXPECT_TRUE(divided);
}

TEST(Slices, RandomStepsHaveValidPlans) {
  for (std::uint64_t seed = 0; seed < draws(16U, 4U); ++seed) {
    SCOPED_TRACE(seed);
    const Graph graph = random_graph(
        seed, {.grid = {.slice_bytes = 1_KiB, .most_slices = 5, .least_slices = 2, .least_share = 0.1}});
    const Machine machine = any_machine(seed);
    const Bytes minimum = minimum_bytes(graph, machine), need = need_bytes(graph, machine);
    for (Bytes budget : {minimum, random_budget(seed, minimum, need), need}) {
      const Plan plan = std::get<Plan>(make_plan(graph, machine, {.device = budget}));
      EXPECT_EQ(joined(validate(graph, plan, {.device = budget})), "");
      EXPECT_LE(plan.lower_bound_seconds, plan.predicted_step_seconds * (1 + 1e-9));
    }
  }
}

// --- what the validator refuses

struct Breach {
  const char* name;
  const char* finding;
  std::function<void(const Graph&, Plan&)> make;
};
class SlicedPlan : public ::testing::TestWithParam<Breach> {};

TEST_P(SlicedPlan, IsRefusedByTheValidator) {
  const Graph graph = sliced_gpt();
  Plan plan = plan_in_slices(graph, {}, 2);
  GetParam().make(graph, plan);
  EXPECT_THAT(joined(validate(graph, plan, {})), HasSubstr(GetParam().finding));
}

Instruction& transfer(Plan& plan, InstructionKind kind, const std::string& bucket, ByteRange part) {
  for (Instruction& instruction : plan.instructions)
    if (instruction.kind == kind &&
        plan.lifetimes[instruction.lifetime].bucket == find_bucket(plan, bucket) && instruction.part == part)
      return instruction;
  throw std::runtime_error("no such transfer");
}

const Breach breaches[] = {
    {"PrefetchOfASliceLost", "reads 'wte.weight.slice3' on the device: stale parameter",
     [](const Graph&, Plan& plan) {
       transfer(plan, InstructionKind::prefetch, "wte.weight", slice(3, 4)).part = slice(2, 3);
     }},
    {"PrefetchOfHalfASlice", "reads 'wte.weight.slice3' on the device: the value is not there",
     [](const Graph&, Plan& plan) {
       transfer(plan, InstructionKind::prefetch, "wte.weight", slice(3, 4)).part.end -= 64;
     }},
    {"GradientOfASliceLost", "gradient lost: 'wte.weight.grad.2.slice3' has not landed on the host",
     [](const Graph&, Plan& plan) {
       transfer(plan, InstructionKind::offload, "wte.weight.grad", slice(2, 4)).part = slice(2, 3);
     }},
    {"PrefetchOverAnUpdateOnTheDevice", "reads 'wte.weight.slice0' on the device: stale parameter",
     [](const Graph&, Plan& plan) {
       transfer(plan, InstructionKind::prefetch, "wte.weight", slice(2, 3)).part = slice(0, 3);
     }},
    {"PrefetchBeforeTheUpdate", "stale parameter",
     [](const Graph&, Plan& plan) {
       transfer(plan, InstructionKind::prefetch, "wte.weight", slice(3, 4)).waits.clear();
     }},
    {"MoreThanTheBucket", "which bucket 'wte.weight' has not",
     [](const Graph&, Plan& plan) {
       transfer(plan, InstructionKind::prefetch, "wte.weight", slice(3, 4)).part.end += 64;
     }},
    {"SliceElsewhere", "does not stand where its rows",
     [](const Graph& graph, Plan& plan) {
       for (BucketTensor& member : plan.buckets[find_bucket(plan, "wte.weight")].tensors)
         if (member.tensor == find_tensor(graph, "wte.weight.slice1")) member.offset = 0;
     }},
    {"StateAsAWholeToo", "of which each slice has its own place",
     [](const Graph& graph, Plan& plan) {
       Bucket& bucket = plan.buckets[find_bucket(plan, "wte.weight.adam.slice0")];
       bucket.bytes = table_bytes;
       bucket.tensors.push_back({find_tensor(graph, "wte.weight.adam_m"), 0});
     }},
    {"UpdateOfASliceLost", "op 'wte.weight.adamw.slice3' never runs",
     [](const Graph& graph, Plan& plan) {
       for (Instruction& instruction : plan.instructions)
         if (instruction.op == find_op(graph, "wte.weight.adamw.slice3"))
           instruction.op = find_op(graph, "wte.weight.adamw.slice2");
     }},
};

INSTANTIATE_TEST_SUITE_P(Each, SlicedPlan, ::testing::ValuesIn(breaches),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Slices, HostilePartsAreRefused) {
  const std::string text = to_json(plan_in_slices(sliced_gpt(), {}, 2));
  const auto refused = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    EXPECT_THROW(plan_from_json(changed), InvalidInput) << to;
  };
  nlohmann::json old = testing::in_version_2(plan_from_json(text));
  EXPECT_EQ(plan_from_json(old.dump()), plan_from_json(text));
  old["version"] = 1;  // which had no parts
  try {
    plan_from_json(old.dump());
    ADD_FAILURE() << "accepted";
  } catch (const InvalidInput& error) {
    EXPECT_THAT(error.what(), ::testing::ContainsRegex("plan.instructions.[0-9]+. has unknown keys"));
  }
  const std::size_t at = text.find("\"part\"");
  const std::string part = text.substr(at, text.find(']', at) + 1 - at);
  for (const char* other : {"\"part\": []", "\"part\": [1]", "\"part\": [-1, 5]", "\"part\": [0, 99999999]",
                            "\"part\": [8, 8]", "\"part\": [9, 8]", "\"part\": 3", "\"part\": [0.5, 8]"})
    refused(part, other);
}

}  // namespace
}  // namespace stowage
