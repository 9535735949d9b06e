#include "offload/plan/schedule/gradient_ring.h"

#include <algorithm>
#include <optional>
#include <tuple>

#include "offload/plan/schedule/byte_owners.h"

namespace stowage {
namespace {

struct Gradient {
  BucketId bucket = no_id;
  Bytes bytes = 0;
  Position leaves = 0;   // the position behind which its offload stands
  Position applied = 0;  // the position behind which its updates stand, after offloads at that position
  Bytes slice = 0;       // bytes of each slice but the last; 0: it may not leave by slices
};

// Returns the bytes of each slice but the last, which may be smaller. Returns 0 unless the slices are
// contiguous and begin at multiples of the alignment; in graphs that GraphBuilder makes they do.
Bytes slice_bytes(const std::vector<ByteRange>& slices) {
  if (slices.size() < 2) return 0;
  const Bytes bytes = slices.front().bytes();
  for (std::size_t i = 0; i < slices.size(); ++i)
    if (slices[i].begin != i * bytes || slices[i].bytes() > bytes) return 0;
  return bytes % most_tensor_alignment == 0 ? bytes : 0;
}

// Returns the gradients in the order of their offloads in the plan.
std::vector<Gradient> gradients_in_ring(const Draft& draft, const BucketLayout& layout) {
  const std::vector<Position> last = last_transfers(draft, layout);
  std::vector<std::uint32_t> offloads(layout.buckets.size(), 0), prefetches = offloads;
  for (const DraftLifetime& lifetime : draft.lifetimes) {
    offloads[lifetime.bucket] += lifetime.offloaded;
    prefetches[lifetime.bucket] += lifetime.prefetched;
  }
  std::vector<Gradient> gradients;
  for (const DraftLifetime& lifetime : draft.lifetimes) {
    const BucketId bucket = lifetime.bucket, parameters = layout.parameters_of[bucket];
    if (layout.roles[bucket] != BucketRole::gradient || !draft.speculates(parameters)) continue;
    if (offloads[bucket] != 1 || prefetches[bucket] != 0 || !lifetime.offloaded) continue;
    const Position leaves = lifetime.last_before_update;
    const Position applied = std::min(std::max(last[bucket], last[parameters]), draft.backward_end - 1);
    gradients.push_back({bucket, align_up(layout.buckets[bucket].bytes, most_tensor_alignment), leaves,
                         applied, applied == leaves ? slice_bytes(layout.slices[bucket]) : 0});
  }
  std::sort(gradients.begin(), gradients.end(), [](const Gradient& a, const Gradient& b) {
    return std::tuple(a.leaves, a.slice > 0, a.bucket) < std::tuple(b.leaves, b.slice > 0, b.bucket);
  });
  return gradients;
}

// Returns nullopt if some gradient would leave before the update that applies the previous owner
// of its bytes.
std::optional<GradientRing> ring_of(Bytes bytes, const std::vector<Gradient>& gradients) {
  GradientRing ring{bytes, {}};
  ByteOwners owners;  // owners are indices in `gradients`
  Bytes next = 0;
  bool stands = true;
  for (std::uint32_t i = 0; i < gradients.size(); ++i) {
    const Gradient& gradient = gradients[i];
    GradientRing::Turn& turn = ring.turns[gradient.bucket];
    if (gradient.bytes > bytes) turn.slices = bytes / gradient.slice;
    const Bytes taken = turn.slices > 0 ? turn.slices * gradient.slice : gradient.bytes;
    if (next + taken > bytes) next = 0;
    turn.offset = next;
    owners.take(next, next + taken, i, [&](std::uint32_t before) {
      const Position applied = gradients[before].applied;
      stands &= turn.slices > 0 ? applied <= gradient.leaves : applied < gradient.leaves;
      turn.after.push_back(gradients[before].bucket);
    });
    next += taken;
  }
  return stands ? std::optional(std::move(ring)) : std::nullopt;
}

}  // namespace

std::vector<Position> last_transfers(const Draft& draft, const BucketLayout& layout) {
  std::vector<Position> of(layout.buckets.size(), 0);
  for (const DraftLifetime& lifetime : draft.lifetimes) {
    Position& last = of[lifetime.bucket];
    if (lifetime.offloaded) last = std::max(last, lifetime.last_before_update);
    if (lifetime.prefetched) last = std::max(last, lifetime.load);
  }
  return of;
}

GradientRing gradient_ring(const Draft& draft, const BucketLayout& layout) {
  if (draft.early_updates != EarlyUpdates::final) return {};
  const std::vector<Gradient> gradients = gradients_in_ring(draft, layout);
  Bytes all = 0, largest = 0, second = 0;
  const auto has_room_for = [&](Bytes part) {
    second = std::max(second, std::min(part, largest));
    largest = std::max(largest, part);
  };
  for (const Gradient& gradient : gradients) {
    all += gradient.bytes;
    has_room_for(gradient.slice > 0 ? gradient.slice : gradient.bytes);
    if (gradient.slice > 0) has_room_for(gradient.slice);
  }
  Bytes bytes = std::max(align_up(all / ring_part, most_tensor_alignment), largest + second);
  for (; bytes < all; bytes += align_up(bytes / ring_part, most_tensor_alignment))
    if (auto ring = ring_of(bytes, gradients)) return *std::move(ring);
  return *ring_of(all, gradients);  // the ring now has room for every gradient at once
}

}  // namespace stowage
