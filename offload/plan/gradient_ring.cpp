#include "offload/plan/gradient_ring.h"

#include <algorithm>
#include <optional>

#include "offload/plan/byte_owners.h"

namespace stowage {
namespace {

struct Gradient {
  BucketId bucket = no_id;
  Bytes bytes = 0;
  Position leaves = 0;   // the position behind which its offload stands
  Position applied = 0;  // and its updates, behind the offloads of the same position
};

// In the order of their offloads in the plan.
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
    gradients.push_back({bucket, align_up(layout.buckets[bucket].bytes, most_tensor_alignment),
                         lifetime.last_before_update,
                         std::min(std::max(last[bucket], last[parameters]), draft.backward_end - 1)});
  }
  std::stable_sort(gradients.begin(), gradients.end(),
                   [](const Gradient& a, const Gradient& b) { return a.leaves < b.leaves; });
  return gradients;
}

// None where a gradient would leave before the update that applies the one which had its bytes.
std::optional<GradientRing> ring_of(Bytes bytes, const std::vector<Gradient>& gradients) {
  GradientRing ring{bytes, {}};
  ByteOwners owners;  // by index among the gradients
  Bytes next = 0;
  bool stands = true;
  for (std::uint32_t i = 0; i < gradients.size(); ++i) {
    const Gradient& gradient = gradients[i];
    if (next + gradient.bytes > bytes) next = 0;
    GradientRing::Turn& turn = ring.turns[gradient.bucket];
    turn.offset = next;
    owners.take(next, next + gradient.bytes, i, [&](std::uint32_t before) {
      stands &= gradients[before].applied < gradient.leaves;
      turn.after.push_back(gradients[before].bucket);
    });
    next += gradient.bytes;
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
  if (!layout.optimizer_in_backward) return {};
  const std::vector<Gradient> gradients = gradients_in_ring(draft, layout);
  Bytes all = 0, largest = 0, second = 0;
  for (const Gradient& gradient : gradients) {
    all += gradient.bytes;
    second = std::max(second, std::min(gradient.bytes, largest));
    largest = std::max(largest, gradient.bytes);
  }
  Bytes bytes = std::max(align_up(all / ring_part, most_tensor_alignment), largest + second);
  for (; bytes < all; bytes += align_up(bytes / ring_part, most_tensor_alignment))
    if (auto ring = ring_of(bytes, gradients)) return *std::move(ring);
  return *ring_of(all, gradients);  // nobody has another's bytes
}

}  // namespace stowage
