#include "offload/plan/validate/structure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "stowage/planner.h"
#include "tests/offload/plan/validate/made_plans.h"
#include "tests/offload/plan/validate/small_plans.h"

namespace stowage {
namespace {

struct Break {
  std::string name;
  std::function<void(Plan&)> apply;
  std::string words;
};
void PrintTo(const Break& way, std::ostream* out) { *out << way.name; }

class BrokenStructure : public ::testing::TestWithParam<Break> {};

TEST_P(BrokenStructure, IsRejectedForTheRightReason) {
  Plan plan = testing::small_streamed_plan();
  GetParam().apply(plan);
  const std::string text = testing::joined(validate(testing::small_graph(), plan, {}));
  EXPECT_THAT(text, ::testing::HasSubstr(GetParam().words));
}

// Buckets: 0 tokens, 1 W, 2 x0, 3 h, 4 x1, 5 loss, 6 dx (dx1 and dh), 7 W.grad, 8 sum, 9 clip, 10 state.
const std::vector<Break> breaks{
    {"tensor_in_two_buckets",
     [](Plan& plan) {
       plan.buckets[4].bytes = 512;
       plan.buckets[4].tensors.push_back({plan.buckets[3].tensors[0].tensor, 256});
     },
     "tensor 'h' is in two buckets, bucket 'h' and bucket 'x1'"},
    {"tensor_in_no_bucket", [](Plan& plan) { plan.buckets[10].tensors.pop_back(); },
     "tensor 'v' is in no bucket"},
    {"tensor_unknown", [](Plan& plan) { plan.buckets[3].tensors[0].tensor = 99; },
     "bucket 'h' holds tensor 99 (which the graph lacks)"},
    {"bucket_empty",
     [](Plan& plan) {
       plan.buckets.push_back({"none", TensorKind::input, {}, {}, 8, {}});
     },
     "bucket 'none' holds no tensor"},
    {"tensor_past_its_bucket", [](Plan& plan) { plan.buckets[10].tensors[1].offset = 260; },
     "tensor 'v' (256 bytes at offset 260) does not fit in bucket 'state' (512 bytes)"},
    {"tensor_far_past_its_bucket", [](Plan& plan) { plan.buckets[10].tensors[1].offset = ~Bytes{0} - 3; },
     "does not fit in bucket 'state'"},
    {"tensor_not_aligned", [](Plan& plan) { plan.buckets[10].tensors[1].offset = 254; },
     "tensor 'v' (256 bytes at offset 254)"},
    {"bucket_too_small", [](Plan& plan) { plan.buckets[1].bytes = 255; },
     "tensor 'W' (256 bytes at offset 0) does not fit"},
    {"tensors_overlap", [](Plan& plan) { plan.buckets[10].tensors[1].offset = 0; },
     "tensors 'm' and 'v' overlap in bucket 'state', and no alias joins them"},
    {"alias_apart",
     [](Plan& plan) {
       plan.buckets[6].bytes = 512;
       plan.buckets[6].tensors[1].offset = 256;
     },
     "op 'g.backward' works on 'dx1' in place, but its result 'dh' has other bytes"},
    {"place_in_an_arena",
     [](Plan& plan) {
       plan.buckets[3].places = {{MemoryId::device, false}};
     },
     "bucket 'h' has a place for the run in memory 0"},
    {"place_in_no_memory",
     [](Plan& plan) {
       plan.buckets[3].places = {{MemoryId{9}, false}};
     },
     "bucket 'h' has a place for the run in memory 9"},
    {"two_places",
     [](Plan& plan) {
       plan.buckets[1].places.push_back({MemoryId::host, false});
     },
     "bucket 'W' has two places in host memory"},
    {"transfer_of_unpinned", [](Plan& plan) { plan.buckets[1].places.front().pinned = false; },
     "instruction 1 (prefetch of bucket 'W') needs a pinned place on the host"},
    {"transfer_without_host", [](Plan& plan) { plan.buckets[2].places.clear(); },
     "instruction 4 (offload of bucket 'x0') needs a pinned place on the host"},
    {"bucket_unknown", [](Plan& plan) { plan.lifetimes[3].bucket = 50; },
     "lifetime 3 of bucket 50 (which the plan lacks)"},
    {"end_unknown", [](Plan& plan) { plan.lifetimes[3].end = 50; },
     "lifetime 3 of bucket 'h' ends with instruction 50"},
    {"op_unknown", [](Plan& plan) { plan.instructions[3].op = 50; },
     "launch of op 50 (which the graph lacks)"},
    {"op_missing", [](Plan& plan) { plan.instructions[18].op = no_id; }, "instruction 18 (commit of"},
    {"use_unknown", [](Plan& plan) { plan.instructions[3].uses[0] = 50; }, "uses lifetime 50"},
    {"host_step_with_uses", [](Plan& plan) { plan.instructions[18].uses = {1}; },
     "instruction 18 (commit of op 'adamw') uses device bytes on the host"},
    {"lifetime_unknown", [](Plan& plan) { plan.instructions[0].lifetime = 50; }, "moves lifetime 50"},
    {"wait_unknown", [](Plan& plan) { plan.instructions[3].waits[0].instruction = 50; },
     "waits for instruction 50"},
    {"wait_too_far_back", [](Plan& plan) { plan.instructions[3].waits[0].steps_back = 2; }, "2 steps back"},
    {"gate_unknown", [](Plan& plan) { plan.gate = 50; }, "the gate is instruction 50"},
    {"alignment_odd", [](Plan& plan) { plan.alignment = 96; }, "the alignment 96 is no power of two"},
    {"offset_not_aligned", [](Plan& plan) { plan.lifetimes[9].offset = 1000; },
     "lifetime 9 of bucket 'dx' stands at 1000, no multiple of 256"},
    {"past_the_arena", [](Plan& plan) { plan.lifetimes[9].offset = 1280; },
     "lifetime 9 of bucket 'dx' ends past the arena of 1280 bytes"},
    {"interval_empty", [](Plan& plan) { plan.lifetimes[3].last = 1; },
     "lifetime 3 of bucket 'h' has the interval [1, 1)"},
    {"interval_past_the_step", [](Plan& plan) { plan.lifetimes[11].last = 10; },
     "has the interval [8, 10) in 9 positions"},
    {"interval_before_the_step", [](Plan& plan) { plan.lifetimes[0].first = -1; },
     "has the interval [-1, 1)"},
    {"used_too_early", [](Plan& plan) { plan.lifetimes[4].first = 3; },
     "instruction 5 (launch of op 'g') at position 2 uses lifetime 4 of bucket 'x1' outside its interval [3, "
     "5)"},
    {"used_too_late", [](Plan& plan) { plan.lifetimes[4].last = 4; },
     "instruction 8 (launch of op 'head.backward') at position 4 uses lifetime 4 of bucket 'x1' outside"},
    {"resident_twice", [](Plan& plan) { plan.buckets[1].residency = Residency::resident; },
     "bucket 'W' is resident but has 2 lifetimes"},
    {"host_bucket_on_the_device", [](Plan& plan) { plan.buckets[3].residency = Residency::host; },
     "lifetime 3 of bucket 'h' is on the device, but the bucket's residency is host"},
};

INSTANTIATE_TEST_SUITE_P(Structure, BrokenStructure, ::testing::ValuesIn(breaks),
                         [](const auto& info) { return info.param.name; });

// Puts any small or extreme number in any place. The validator may report something or nothing,
// but must return.
class Vandal {
 public:
  explicit Vandal(std::uint64_t seed) : random_(seed) {}

  void damage(Plan& plan) {
    Lifetime& lifetime = plan.lifetimes[random_() % plan.lifetimes.size()];
    Bucket& bucket = plan.buckets[random_() % plan.buckets.size()];
    Instruction& instruction = plan.instructions[random_() % plan.instructions.size()];
    switch (random_() % 16) {
      case 0:
        lifetime.bucket = id();
        return;
      case 1:
        lifetime.first = static_cast<Position>(number());
        return;
      case 2:
        lifetime.last = static_cast<Position>(number());
        return;
      case 3:
        lifetime.offset = number();
        return;
      case 4:
        lifetime.end = id();
        return;
      case 5:
        bucket.bytes = number();
        return;
      case 6:
        bucket.tensors.push_back({id(), number()});
        return;
      case 7:
        if (bucket.on_host())
          bucket.places.clear();
        else
          bucket.places = {{static_cast<MemoryId>(random_() % 3), random_() % 2 == 0}};
        return;
      case 8:
        bucket.residency = static_cast<Residency>(random_() % 7);
        return;
      case 9:
        instruction.kind = static_cast<InstructionKind>(random_() % 6);
        return;
      case 10:
        instruction.lane = static_cast<LaneRole>(random_() % lane_roles);
        return;
      case 11:
        instruction.op = id();
        return;
      case 12:
        instruction.lifetime = id();
        return;
      case 13:
        instruction.uses.push_back(id());
        return;
      case 14:
        instruction.waits.push_back({id(), static_cast<std::uint32_t>(random_() % 3)});
        return;
      default:
        (random_() % 2 == 0 ? plan.alignment : plan.device_peak_bytes) = number();
        return;
    }
  }

 private:
  std::uint32_t id() { return random_() % 8 == 0 ? static_cast<std::uint32_t>(number()) : small(); }
  std::uint32_t small() { return static_cast<std::uint32_t>(random_() % 20); }
  std::uint64_t number() {
    const std::uint64_t extremes[] = {0, 1, ~std::uint64_t{0}, std::uint64_t{1} << 63, 0xffffffff, small()};
    return extremes[random_() % std::size(extremes)];
  }
  std::mt19937_64 random_;
};

TEST(Structure, AnyPlanIsJudgedWithoutHarm) {
  const Graph graph = testing::small_graph();
  Vandal vandal(23);
  int rejected = 0;
  for (int round = 0; round < 5000; ++round) {
    Plan plan = round % 2 == 0 ? testing::small_streamed_plan() : testing::small_resident_plan();
    for (int times = round % 3; times >= 0; --times) vandal.damage(plan);
    rejected += validate(graph, plan, {}).empty() ? 0 : 1;
  }
  EXPECT_GT(rejected, 4000);
}

}  // namespace
}  // namespace stowage
