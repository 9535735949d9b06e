#include "offload/engine/lent.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "offload/engine/binding.h"
#include "stowage/engine.h"
#include "stowage/error.h"

namespace stowage {

std::vector<TensorId> parameters_of(const Graph& lender, const Graph& graph) {
  std::map<std::string_view, TensorId> there;
  for (TensorId id = 0; id < lender.tensors.size(); ++id)
    if (lender.tensor(id).kind == TensorKind::parameter) there[lender.tensor(id).name] = id;
  std::vector<TensorId> found(graph.tensors.size(), no_id);
  for (TensorId id = 0; id < graph.tensors.size(); ++id) {
    const Tensor& own = graph.tensor(id);
    if (own.kind != TensorKind::parameter) continue;
    const auto same = there.find(own.name);
    if (same == there.end() || lender.tensor(same->second).type != own.type ||
        lender.tensor(same->second).shape != own.shape)
      throw InvalidInput(fmt::format(
          "the engine that is to be evaluated has no parameter '{}' of this type and shape: build "
          "both graphs of one model",
          own.name));
    found[id] = same->second;
  }
  return found;
}

ByteRange free_between_steps(const Plan& plan) {
  std::vector<ByteRange> residents;
  for (const Lifetime& lifetime : plan.lifetimes)
    if (lifetime.end == no_id)
      residents.push_back({lifetime.offset, lifetime.offset + plan.buckets[lifetime.bucket].bytes});
  std::sort(residents.begin(), residents.end(),
            [](const ByteRange& a, const ByteRange& b) { return a.begin < b.begin; });
  residents.push_back({plan.device_peak_bytes, plan.device_peak_bytes});
  ByteRange largest;
  Bytes begin = 0;
  for (const ByteRange& resident : residents) {
    const ByteRange free{begin, std::max(begin, resident.begin)};
    if (free.bytes() > largest.bytes()) largest = free;
    begin = std::max(begin, (resident.end + plan.alignment - 1) / plan.alignment * plan.alignment);
  }
  return largest;
}

Graph planned_beside(const Graph& graph, const Graph& lender, const Plan& plan) {
  std::vector<std::uint8_t> resident(plan.buckets.size(), 0);
  for (const Lifetime& lifetime : plan.lifetimes)
    if (lifetime.end == no_id) resident[lifetime.bucket] = 1;
  const std::vector<TensorPlace> places = tensor_places(lender, plan);
  const std::vector<TensorId> there = parameters_of(lender, graph);
  Graph planned = graph;
  std::vector<std::uint8_t> in_place(graph.tensors.size(), 0);
  for (TensorId id = 0; id < there.size(); ++id) {
    if (there[id] == no_id || !resident[places[there[id]].bucket]) continue;
    in_place[id] = 1;
    planned.tensors[id].kind = TensorKind::input;  // one that no op reads, and that needs no place
  }
  for (Op& op : planned.ops) {
    std::vector<std::uint32_t> place_of(op.reads.size());  // of each operand that stays
    std::vector<TensorId> reads;
    for (std::size_t i = 0; i < op.reads.size(); ++i) {
      place_of[i] = static_cast<std::uint32_t>(reads.size());
      if (!in_place[op.reads[i]]) reads.push_back(op.reads[i]);
    }
    for (Alias& alias : op.may_alias) alias.read = place_of[alias.read];
    op.reads = std::move(reads);
  }
  return planned;
}

std::vector<Moved> lent_parts(const Bucket& bucket, std::byte* device, std::span<const LentParameter> lent) {
  std::vector<Moved> parts;
  for (const BucketTensor& member : bucket.tensors)
    if (const LentParameter& of = lent[member.tensor]; of.host != nullptr)
      parts.push_back({device + member.offset, of.host, of.bytes});
  return parts;
}

void load_residents(Device& device, LaneId h2d, const Plan& plan, const Arena& arena,
                    std::span<const LentParameter> lent) {
  for (const Lifetime& lifetime : plan.lifetimes) {
    const Bucket& bucket = plan.buckets[lifetime.bucket];
    if (lifetime.end != no_id || bucket.kind != TensorKind::parameter) continue;
    for (const Moved& part : lent_parts(bucket, arena.at(lifetime.offset, bucket.bytes), lent))
      device.copy(h2d, part.device, part.host, part.bytes, bucket.name);
  }
  device.synchronise_lane(h2d);
}

}  // namespace stowage
