// Which gradients share bytes of the gradient ring.
#include "offload/plan/schedule/gradient_ring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace stowage {
namespace {

struct LeavingGradient {
  Bytes bytes = 0;
  Position leaves = 0;
  Position parameter_read = 0;  // the last prefetch of its parameter
  Bytes slice = 0;              // it is cut into slices of so many bytes; 0: it is not cut
};
std::vector<ByteRange> slices_of(const LeavingGradient& gradient) {
  std::vector<ByteRange> slices;
  for (Bytes begin = 0; gradient.slice > 0 && begin < gradient.bytes; begin += gradient.slice)
    slices.push_back({begin, std::min(begin + gradient.slice, gradient.bytes)});
  return slices;
}
// Of bucket 2i, which is the gradient of bucket 2i + 1.
GradientRing ring_of(const std::vector<LeavingGradient>& gradients) {
  BucketLayout layout;
  Draft draft;
  draft.backward_end = 100;
  draft.early_updates = EarlyUpdates::final;
  for (const LeavingGradient& each : gradients) {
    const auto bucket = static_cast<BucketId>(layout.buckets.size());
    layout.buckets.resize(bucket + 2);
    layout.buckets[bucket].bytes = each.bytes;
    layout.slices.insert(layout.slices.end(), 2, slices_of(each));
    layout.roles.insert(layout.roles.end(), {BucketRole::gradient, BucketRole::parameter});
    layout.parameters_of.insert(layout.parameters_of.end(), {bucket + 1, no_id});
    draft.speculated.insert(draft.speculated.end(), {0, 1});
    draft.lifetimes.push_back({.bucket = bucket, .last_before_update = each.leaves, .offloaded = true});
    draft.lifetimes.push_back({.bucket = bucket + 1, .prefetched = true, .load = each.parameter_read});
  }
  return gradient_ring(draft, layout);
}

// The example of gradient_ring.h: buckets 0, 2, 4, 6 and 8 are g5 to g1.
TEST(GradientRing, IsUsedAgainFromItsBegin) {
  const GradientRing ring = ring_of({{512, 1}, {1000, 2}, {768, 3}, {1024, 4}, {768, 5}});
  EXPECT_EQ(ring.bytes, 2048U);
  const auto expect_turn = [&](BucketId bucket, Bytes offset, const std::vector<BucketId>& after) {
    EXPECT_EQ(ring.turns.at(bucket).offset, offset) << bucket;
    EXPECT_EQ(ring.turns.at(bucket).after, after) << bucket;
  };
  expect_turn(0, 0, {});
  expect_turn(2, 512, {});
  expect_turn(4, 0, {0, 2});
  expect_turn(6, 768, {2});
  expect_turn(8, 0, {4});
}

// None of them can wait for an update that stands behind it in the plan.
TEST(GradientRing, HasRoomForAllThatLeaveBeforeTheirUpdates) {
  EXPECT_EQ(ring_of({{1024, 1}, {1024, 2}, {1024, 3}, {1024, 4}}).bytes, 2048U);
  EXPECT_EQ(ring_of({{1024, 4}, {1024, 4}, {1024, 4}, {1024, 4}}).bytes, 4096U);
  const GradientRing late = ring_of({{1024, 1, 3}, {1024, 2}, {1024, 3}, {1024, 4}});
  EXPECT_GE(late.bytes, 3072U);
  EXPECT_LT(late.bytes, 4096U);
  EXPECT_EQ(late.turns.at(4).after, std::vector<BucketId>{});
}

// Bucket 0 has 4.5 slices. It leaves behind the same op as bucket 4, and so after it; bucket 2 leaves before
// them, bucket 6 behind.
TEST(GradientRing, IsAllOfOneThatLeavesBySlices) {
  const GradientRing ring = ring_of({{4608, 2, 0, 1024}, {1024, 1}, {1536, 2}, {512, 3}});
  EXPECT_EQ(ring.bytes, 2560U);
  EXPECT_EQ(ring.turns.at(0).slices, 2U);
  EXPECT_EQ(ring.turns.at(0).offset, 0U);
  EXPECT_EQ(ring.turns.at(0).after, (std::vector<BucketId>{2, 4}));
  EXPECT_EQ(ring.turns.at(6).offset, 2048U);
  EXPECT_EQ(ring.turns.at(6).slices, 0U);
  // Without the others there is room for two slices.
  EXPECT_EQ(ring_of({{4608, 2, 0, 1024}}).bytes, 2048U);
}

TEST(GradientRing, TakesInWholesWhatCannotLeaveBySlices) {
  EXPECT_EQ(ring_of({{4096, 1, 0, 1024}, {512, 2}}).bytes, 2048U);
  EXPECT_EQ(ring_of({{4096, 1, 2, 1024}, {512, 2}}).bytes,
            4608U);  // its parameter is read behind its offload
  EXPECT_EQ(ring_of({{4096, 1, 0, 1000}, {512, 2}}).bytes, 4608U);  // no multiple of the alignment
  EXPECT_EQ(ring_of({{4096, 1, 0, 4096}, {512, 2}}).bytes, 4608U);  // one slice
  const GradientRing with_room = ring_of({{1024, 1, 0, 256}, {2048, 2}, {2048, 3}});
  EXPECT_EQ(with_room.turns.at(0).slices, 0U);
}

}  // namespace
}  // namespace stowage
