#include "offload/parallel/half_block_sums.h"

#include <algorithm>

#include "offload/parallel/layer_choice.h"
#include "src/graph/cost.h"

namespace stowage {
namespace {

constexpr double close = 1e-7;  // cuts whose slowest stages differ by no more are the same

template <class Visit>
void each_field(Visit visit) {
  for (double HalfBlockSums::*field :
       {&HalfBlockSums::forward_seconds, &HalfBlockSums::backward_seconds, &HalfBlockSums::peer_seconds,
        &HalfBlockSums::host_update_seconds, &HalfBlockSums::weight_bytes, &HalfBlockSums::gradient_bytes,
        &HalfBlockSums::state_bytes})
    visit(field);
}

// Returns by parameter the first half-block that reads it; else 0.
std::vector<std::uint32_t> owners_of(const Graph& graph) {
  std::vector<std::uint32_t> owner(graph.tensors.size(), no_id);
  for (const Op& op : graph.ops)
    for (TensorId id : op.reads)
      if (op.phase != Phase::update && graph.tensor(id).kind == TensorKind::parameter)
        owner[id] = std::min(owner[id], graph.half_block_of(op.unit));
  for (std::uint32_t& block : owner)
    if (block == no_id) block = 0;
  return owner;
}

// Adds what forward makes in one half-block and reads in a later one, to the cuts between.
void add_sent(const Graph& graph, std::vector<HalfBlockSums>& sums) {
  std::vector<std::uint32_t> made_in(graph.tensors.size(), no_id), read_in(graph.tensors.size(), 0);
  for (const Op& op : graph.ops) {
    if (op.phase != Phase::forward) continue;
    const std::uint32_t block = graph.half_block_of(op.unit);
    for (TensorId id : op.reads) read_in[id] = std::max(read_in[id], block);
    for (TensorId id : op.writes) made_in[id] = block;
  }
  for (TensorId id = 0; id < graph.tensors.size(); ++id)
    for (std::uint32_t block = made_in[id]; block != no_id && block < read_in[id]; ++block)
      sums[block].sent_bytes += static_cast<double>(graph.tensor(id).bytes());
}

}  // namespace

std::vector<HalfBlockSums> half_block_sums(const Graph& graph, const Machine& machine) {
  std::vector<HalfBlockSums> sums(graph.unit_names.size() / graph.micro_batches);
  const std::vector<std::uint32_t> owner = owners_of(graph);
  std::vector<std::uint8_t> from_peers(graph.tensors.size(), 0);  // 1 for what the peer lane makes
  for (const Op& op : graph.ops) {
    const double seconds = op_seconds(op, machine);
    if (op.phase != Phase::update) {
      const bool follows =
          op.phase == Phase::backward && !op.reads.empty() &&
          std::all_of(op.reads.begin(), op.reads.end(), [&](TensorId id) { return from_peers[id] != 0; });
      const bool is_peer = is_collective(op) || follows;
      for (TensorId id : op.writes) from_peers[id] = is_peer;
      HalfBlockSums& of = sums[graph.half_block_of(op.unit)];
      double& sum = is_peer                      ? of.peer_seconds
                    : op.phase == Phase::forward ? of.forward_seconds
                                                 : of.backward_seconds;
      sum += seconds;
      continue;
    }
    if (op.writes.empty() || graph.kind_of(op.writes.front()) != TensorKind::parameter) continue;
    HalfBlockSums& of = sums[owner[graph.whole_of(op.writes.front())]];
    of.host_update_seconds += host_seconds(op, machine);
    for (TensorId id : op.reads)
      if (graph.kind_of(id) == TensorKind::gradient)
        of.gradient_bytes += static_cast<double>(graph.tensor(id).bytes());
    for (TensorId id : op.writes)
      if (graph.kind_of(id) == TensorKind::optimizer_state)
        of.state_bytes += static_cast<double>(graph.tensor(id).bytes());
  }
  for (TensorId id = 0; id < graph.tensors.size(); ++id)
    if (graph.tensor(id).kind == TensorKind::parameter)
      sums[owner[id]].weight_bytes += static_cast<double>(graph.tensor(id).bytes());
  add_sent(graph, sums);
  return sums;
}

double least_seconds(const HalfBlockSums& stage, std::int64_t micro_batches, const StageRoom& room) {
  const Machine& machine = *room.machine;
  const double bytes = stage.weight_bytes + stage.gradient_bytes + stage.state_bytes;
  const double away =
      room.arena == unlimited || bytes == 0 ? 0 : std::max(0.0, 1 - static_cast<double>(room.arena) / bytes);
  if (room.host != unlimited &&
      away * (stage.weight_bytes + stage.state_bytes) > static_cast<double>(room.host))
    return infinite_seconds;
  const double compute =
      static_cast<double>(micro_batches) * (stage.forward_seconds + stage.backward_seconds);
  return std::max({compute, stage.peer_seconds, away * stage.weight_bytes / machine.h2d.bytes_per_second,
                   away * stage.gradient_bytes / machine.d2h.bytes_per_second,
                   away * stage.host_update_seconds});
}

PrefixSums::PrefixSums(const std::vector<HalfBlockSums>& half_blocks) : sums_(1), sent_(1) {
  for (const HalfBlockSums& of : half_blocks) {
    HalfBlockSums sum = sums_.back();
    each_field([&](double HalfBlockSums::*field) { sum.*field += of.*field; });
    sums_.push_back(sum);
    sent_.push_back(of.sent_bytes);
  }
}

HalfBlockSums PrefixSums::of(std::uint32_t first, std::uint32_t last) const {
  HalfBlockSums sum = sums_[last];
  each_field([&](double HalfBlockSums::*field) { sum.*field -= sums_[first].*field; });
  sum.sent_bytes = sent_[last];
  return sum;
}

HalfBlockSums PrefixSums::of(const std::vector<HalfBlocks>& ranges) const {
  HalfBlockSums sum = of(ranges.front().first, ranges.front().last);
  for (std::size_t r = 1; r < ranges.size(); ++r) {
    const HalfBlockSums more = of(ranges[r].first, ranges[r].last);
    each_field([&](double HalfBlockSums::*field) { sum.*field += more.*field; });
  }
  return sum;
}

// The least of the largest is found by halving; stages are filled from the front.
std::vector<std::uint32_t> even_cuts(const PrefixSums& sums, std::uint32_t stages, std::int64_t micro_batches,
                                     const StageRoom& room) {
  const std::uint32_t all = sums.half_blocks();
  const auto seconds = [&](std::uint32_t first, std::uint32_t last) {
    return least_seconds(sums.of(first, last), micro_batches, room);
  };
  const auto filled = [&](double most) {
    std::vector<std::uint32_t> cuts{0};
    for (std::uint32_t s = 0; s < stages; ++s) {
      const std::uint32_t left = stages - s - 1;  // each of them needs a half-block
      std::uint32_t low = cuts.back() + 1, high = all - left;
      while (low < high) {
        const std::uint32_t middle = (low + high + 1) / 2;
        if (seconds(cuts.back(), middle) <= most)
          low = middle;
        else
          high = middle - 1;
      }
      cuts.push_back(low);
    }
    return cuts;
  };
  const auto largest = [&](const std::vector<std::uint32_t>& cuts) {
    double most = cuts.back() == all ? 0 : infinite_seconds;
    for (std::size_t s = 0; s + 1 < cuts.size(); ++s) most = std::max(most, seconds(cuts[s], cuts[s + 1]));
    return most;
  };
  double low = 0, high = seconds(0, all);
  std::vector<std::uint32_t> best = filled(high);
  for (int halving = 0; halving < 60 && high - low > close * high; ++halving) {
    const double middle = high == infinite_seconds ? std::max(1.0, 2 * low) : (low + high) / 2;
    const std::vector<std::uint32_t> cuts = filled(middle);
    if (largest(cuts) <= middle) {
      best = cuts;
      high = middle;
    } else {
      low = middle;
    }
  }
  best.back() = all;
  return best;
}

}  // namespace stowage
