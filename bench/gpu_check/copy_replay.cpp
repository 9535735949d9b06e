#include "bench/gpu_check/copy_replay.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>

#include "tools/calibrate/stopwatch.h"

namespace stowage::bench {
namespace {

constexpr int rounds = 3;
constexpr Bytes largest_buffer = 256_MiB;

struct Sizes {
  std::vector<Bytes> buckets;
  std::vector<Bytes> tensors;
};

Sizes sizes_of(const Graph& graph, const Plan& plan, LaneRole role) {
  Sizes sizes;
  for (const Instruction& instruction : plan.instructions) {
    if (instruction.lane != role || instruction.lifetime == no_id) continue;
    const Bucket& bucket = plan.buckets[plan.lifetimes[instruction.lifetime].bucket];
    if (bucket.kind != TensorKind::parameter && bucket.kind != TensorKind::gradient) continue;
    sizes.buckets.push_back(bucket.bytes);
    std::map<Bytes, Bytes> at;  // tensors that share bytes count once
    for (const BucketTensor& member : bucket.tensors)
      at[member.offset] = std::max(at[member.offset], graph.tensor(member.tensor).bytes());
    for (const auto& [offset, bytes] : at) sizes.tensors.push_back(bytes);
  }
  return sizes;
}

// Pinned and device memory that copies walk through, from its start again where they would pass its end.
class Walk {
 public:
  Walk(Device& device, LaneRole role, Bytes bytes)
      : device_(device),
        inward_(role == LaneRole::h2d),
        bytes_(bytes),
        lane_(device, role),
        here_(device, MemoryKind::pinned, bytes),
        there_(device, MemoryKind::device, bytes),
        drain_(device, lane_.id()),
        stopwatch_(device, lane_.id()) {
    std::memset(here_.data(), 0, bytes);
    const Lane filling(device, LaneRole::h2d);
    const Drain drain(device, filling.id());
    device.copy(filling.id(), there_.data(), here_.data(), bytes, "replay fill");
  }

  CopyTotal measure(const std::vector<Bytes>& sizes) {
    CopyTotal total;
    total.copies = sizes.size();
    total.bytes = std::accumulate(sizes.begin(), sizes.end(), Bytes{0});
    total.seconds = stopwatch_.median_seconds(rounds, [&] { copy(sizes); });
    return total;
  }

 private:
  void copy(const std::vector<Bytes>& sizes) {
    Bytes at = 0;
    for (const Bytes bytes : sizes) {
      if (at + bytes > bytes_) at = 0;
      void* to = (inward_ ? there_ : here_).data() + at;
      const void* from = (inward_ ? here_ : there_).data() + at;
      device_.copy(lane_.id(), to, from, bytes, "replay");
      at += align_up(bytes, 256);
    }
  }

  Device& device_;
  bool inward_;
  Bytes bytes_;
  Lane lane_;
  DeviceMemory here_;
  DeviceMemory there_;
  Drain drain_;
  Stopwatch stopwatch_;
};

}  // namespace

CopyReplay replay_copies(Device& device, const Graph& graph, const Plan& plan, LaneRole role) {
  const Sizes sizes = sizes_of(graph, plan, role);
  if (sizes.buckets.empty()) return {};
  const Bytes all = std::accumulate(sizes.buckets.begin(), sizes.buckets.end(), Bytes{0});
  const Bytes largest = *std::max_element(sizes.buckets.begin(), sizes.buckets.end());
  Walk walk(device, role, std::max(largest, std::min({all, largest_buffer, device.memory_info().free})));
  return {walk.measure(sizes.buckets), walk.measure(sizes.tensors)};
}

}  // namespace stowage::bench
