#include "samples/report/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stowage::samples {
namespace {

using ::testing::HasSubstr;

// Bucket 0 comes in twice and leaves once; bucket 1 comes in.
Plan two_buckets() {
  Plan plan;
  plan.buckets.resize(2);
  plan.buckets[0].bytes = 1000;
  plan.buckets[1].bytes = 10;
  plan.pinned_bytes = 1010;
  plan.lifetimes.resize(3);
  plan.lifetimes[2].bucket = 1;
  plan.lifetimes[0].bucket = plan.lifetimes[1].bucket = 0;
  const auto add = [&](InstructionKind kind, LifetimeId lifetime) {
    Instruction instruction;
    instruction.kind = kind;
    instruction.lifetime = lifetime;
    plan.instructions.push_back(instruction);
  };
  add(InstructionKind::prefetch, 0);
  add(InstructionKind::launch, 0);
  add(InstructionKind::prefetch, 1);
  add(InstructionKind::prefetch, 2);
  add(InstructionKind::offload, 1);
  return plan;
}

TEST(Unpinned, CountsWhatIsMoved) {
  const std::vector<BucketId> first = {0}, both = {0, 1};
  const Unpinned one = unpinned_of(two_buckets(), first);
  EXPECT_EQ(one.bytes, 1000U);
  EXPECT_EQ(one.in_bytes, 2000U);
  EXPECT_EQ(one.out_bytes, 1000U);
  EXPECT_EQ(unpinned_of(two_buckets(), both).in_bytes, 2010U);
}

// Two gradients that take turns in its bytes, and a bucket beside them.
TEST(Unpinned, CountsTheGradientRingOnce) {
  Plan plan = two_buckets();
  plan.buckets.push_back(plan.buckets[0]);
  plan.ring_bytes = 1024;
  for (const BucketId id : {0U, 2U}) plan.buckets[id].places = {{MemoryId::host, true, 0}};
  const std::vector<BucketId> all = {0, 1, 2}, outside = {1};
  EXPECT_EQ(unpinned_of(plan, all).bytes, 1024U + 10);
  EXPECT_EQ(unpinned_of(plan, outside).bytes, 10U);
}

TEST(UnpinnedNote, SaysWhatItIsWhatItCostsAndWhatToDo) {
  Machine machine;
  machine.h2d.bytes_per_second = 1000;
  machine.d2h.bytes_per_second = 500;
  const std::vector<BucketId> first = {0};
  const std::string note = unpinned_note(two_buckets(), machine, first);
  for (const char* part :
       {"1000 B (1000 bytes) of 1010 B could not be page-locked", "1.95 KiB of it in and 1000 B out per step",
        "8.00 s of each step, if at half the link's rate", "--host-memory", "--pageable never"})
    EXPECT_THAT(note, HasSubstr(part));
  EXPECT_EQ(unpinned_note(two_buckets(), machine, {}), "");
}

}  // namespace
}  // namespace stowage::samples
