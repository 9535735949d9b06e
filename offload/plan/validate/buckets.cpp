// Checks that each tensor has bytes of its own in one bucket, and that buckets have places in memory.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "offload/plan/validate/structure.h"

namespace stowage::validation {
namespace {

// Returns whether the host keeps the tensor from step to step, or reads and writes it by its address. The
// gradient ring has no bytes for such a tensor: it may hold a part of a bucket alone.
bool is_kept_on_host(const Graph& graph, TensorId id) {
  const TensorKind kind = graph.kind_of(id);
  return kind == TensorKind::parameter || kind == TensorKind::optimizer_state || kind == TensorKind::input ||
         id == graph.loss || id == graph.clip;
}

// Checks a bucket in the gradient ring, which is for gradients that transfers move.
void check_ring_place(const Plan& plan, BucketId id, Report& report) {
  const Bucket& bucket = plan.buckets[id];
  if (!bucket.in_ring()) return;
  const BucketPlace& place = *bucket.place_in(MemoryId::host);
  const Bytes offset = *place.ring_offset;
  if (!plan.optimizer_in_backward || bucket.kind != TensorKind::gradient || !bucket.pinned())
    report.add(fmt::format("{} has bytes of the gradient ring, which are not for it", report.bucket(id)));
  const bool is_aligned = offset % most_tensor_alignment == 0 && place.ring_span % most_tensor_alignment == 0;
  if (!fits(offset, bucket.ring_bytes(), plan.ring_bytes) || !is_aligned)
    report.add(fmt::format("{} ({} bytes) cannot stand at byte {} of the gradient ring of {} bytes",
                           report.bucket(id), bucket.ring_bytes(), offset, plan.ring_bytes));
}

// Checks that the bucket has at most one place in each memory, and none in a memory with an arena, where
// lifetimes have their places.
void check_places(const Bucket& bucket, BucketId id, Report& report) {
  for (const BucketPlace& place : bucket.places) {
    if (static_cast<std::size_t>(place.memory) >= memory_table.size() || row_of(place.memory).has_arena) {
      report.add(fmt::format("{} has a place for the run in memory {}", report.bucket(id),
                             static_cast<int>(place.memory)));
    } else if (bucket.place_in(place.memory) != &place) {
      report.add(fmt::format("{} has two places in {} memory", report.bucket(id), row_of(place.memory).name));
    }
  }
}

void place_tensors(const Graph& graph, const Plan& plan, Places& places, Report& report) {
  for (BucketId id = 0; id < plan.buckets.size() && !report.is_full(); ++id) {
    const Bucket& bucket = plan.buckets[id];
    if (bucket.tensors.empty()) report.add(fmt::format("{} holds no tensor", report.bucket(id)));
    check_places(bucket, id, report);
    check_ring_place(plan, id, report);
    for (const BucketTensor& member : bucket.tensors) {
      if (member.tensor >= graph.tensors.size()) {
        report.add(fmt::format("{} holds {}", report.bucket(id), report.tensor(member.tensor)));
        continue;
      }
      const Tensor& tensor = graph.tensor(member.tensor);
      if (places.bucket[member.tensor] != no_id) {
        report.add(fmt::format("tensor {} is in two buckets, {} and {}", report.tensor(member.tensor),
                               report.bucket(places.bucket[member.tensor]), report.bucket(id)));
      }
      const Bytes alignment = tensor_alignment(tensor.bytes());
      if (!fits(member.offset, tensor.bytes(), bucket.bytes) || member.offset % alignment != 0) {
        report.add(
            fmt::format("tensor {} ({} bytes at offset {}) does not fit in {} ({} bytes) at a multiple of {}",
                        report.tensor(member.tensor), tensor.bytes(), member.offset, report.bucket(id),
                        bucket.bytes, alignment));
      }
      if (bucket.in_ring() && is_kept_on_host(graph, member.tensor)) {
        report.add(fmt::format("{} has bytes of the gradient ring and holds {}, which is no gradient",
                               report.bucket(id), report.tensor(member.tensor)));
      }
      places.bucket[member.tensor] = id;
      places.offset[member.tensor] = member.offset;
    }
  }
  const std::vector<std::vector<TensorId>> slices = graph.slices();
  for (TensorId id = 0; id < graph.tensors.size(); ++id) {
    const bool by_slices = !slices[id].empty() && graph.tensor(id).kind == TensorKind::optimizer_state;
    if (by_slices && places.bucket[id] != no_id)
      report.add(fmt::format("{} holds {}, of which each slice has its own place",
                             report.bucket(places.bucket[id]), report.tensor(id)));
    if (!by_slices && places.bucket[id] == no_id)
      report.add(fmt::format("tensor {} is in no bucket", report.tensor(id)));
  }
}

bool is_inside_its_whole(const Graph& graph, TensorId id) {
  return graph.is_slice(id) && graph.kind_of(id) != TensorKind::optimizer_state;
}

void check_slices(const Graph& graph, const Places& places, Report& report) {
  for (TensorId id = 0; id < graph.tensors.size(); ++id) {
    if (!is_inside_its_whole(graph, id)) continue;
    const TensorId whole = graph.whole_of(id);
    if (places.bucket[id] != places.bucket[whole] ||
        places.offset[id] != places.offset[whole] + graph.offset_in_whole(id)) {
      report.add(fmt::format("the slice {} does not stand where its rows of {} are", report.tensor(id),
                             report.tensor(whole)));
    }
  }
}

// Returns a leader for each tensor. Tensors joined by an alias, directly or through others, have
// the same leader.
std::vector<TensorId> alias_leaders(const Graph& graph) {
  std::vector<TensorId> leader(graph.tensors.size());
  std::iota(leader.begin(), leader.end(), 0U);
  const auto find = [&leader](TensorId id) {
    while (leader[id] != id) id = leader[id] = leader[leader[id]];
    return id;
  };
  for (const Op& op : graph.ops)
    for (const Alias& alias : op.may_alias) leader[find(op.writes[alias.write])] = find(op.reads[alias.read]);
  for (TensorId id = 0; id < leader.size(); ++id) leader[id] = find(id);
  return leader;
}

void check_aliases(const Graph& graph, const Places& places, Report& report) {
  for (const Op& op : graph.ops) {
    for (const Alias& alias : op.may_alias) {
      const TensorId written = op.writes[alias.write];
      const TensorId read = op.reads[alias.read];
      if (places.bucket[written] != places.bucket[read] || places.offset[written] != places.offset[read]) {
        report.add(fmt::format("op '{}' works on {} in place, but its result {} has other bytes", op.name,
                               report.tensor(read), report.tensor(written)));
      }
    }
  }
}

// Returns whether two partial sums may follow one another in the same bytes. check_values finds out whether
// each sum is there when it is read.
bool may_take_turns(const Graph& graph, const BucketTensor& a, const BucketTensor& b) {
  const Tensor& first = graph.tensor(a.tensor);
  const Tensor& second = graph.tensor(b.tensor);
  return graph.gradient_groups > 1 && first.kind == TensorKind::gradient && second.kind == first.kind &&
         a.offset == b.offset && first.bytes() == second.bytes();
}

void check_apart(const Graph& graph, const Plan& plan, Report& report) {
  const std::vector<TensorId> leader = alias_leaders(graph);
  for (BucketId id = 0; id < plan.buckets.size(); ++id) {
    if (report.is_full()) return;
    std::vector<BucketTensor> members = plan.buckets[id].tensors;
    std::sort(members.begin(), members.end(),
              [](const BucketTensor& a, const BucketTensor& b) { return a.offset < b.offset; });
    for (std::size_t i = 0; i < members.size(); ++i) {
      const Bytes end = members[i].offset + graph.tensor(members[i].tensor).bytes();
      if (is_inside_its_whole(graph, members[i].tensor)) continue;  // the whole tensor is checked instead
      for (std::size_t k = i + 1; k < members.size() && members[k].offset < end; ++k) {
        if (is_inside_its_whole(graph, members[k].tensor)) continue;
        if (leader[members[i].tensor] == leader[members[k].tensor]) continue;
        if (may_take_turns(graph, members[i], members[k])) continue;
        if (report.is_full()) return;
        report.add(fmt::format("tensors {} and {} overlap in {}, and no alias joins them",
                               report.tensor(members[i].tensor), report.tensor(members[k].tensor),
                               report.bucket(id)));
      }
    }
  }
}

}  // namespace

Places check_buckets(const Graph& graph, const Plan& plan, Report& report) {
  Places places;
  places.bucket.assign(graph.tensors.size(), no_id);
  places.offset.assign(graph.tensors.size(), 0);
  place_tensors(graph, plan, places, report);
  if (!report.empty()) return places;
  check_slices(graph, places, report);
  check_aliases(graph, places, report);
  check_apart(graph, plan, report);
  return places;
}

}  // namespace stowage::validation
