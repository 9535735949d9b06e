#include "offload/plan/schedule/gathers_ahead.h"

#include <algorithm>
#include <utility>

namespace stowage {
namespace {

// True if the op is a gather that may stand anywhere in backward: parameters keep their values there.
bool is_gather_of_parameters(const Graph& graph, const Op& op) {
  return is_collective(op) && std::all_of(op.reads.begin(), op.reads.end(), [&](TensorId read) {
           return graph.kind_of(read) == TensorKind::parameter;
         });
}

// Returns by position the bytes of an exchange, 0 for other ops.
std::vector<Bytes> exchanged_bytes(const Graph& graph, const std::vector<SequenceStep>& sequence) {
  std::vector<Bytes> bytes;
  bytes.reserve(sequence.size());
  for (const SequenceStep& step : sequence) {
    const Op& op = graph.op(step.op);
    const bool exchanges = op.kernel == "exchange" && !op.writes.empty();
    bytes.push_back(exchanges ? graph.tensor(op.writes.front()).bytes() : 0);
  }
  return bytes;
}

}  // namespace

void move_gathers(const Graph& graph, std::uint32_t exchanges, std::vector<SequenceStep>& sequence) {
  const std::vector<Bytes> exchanged = exchanged_bytes(graph, sequence);
  Bytes all = 0, number = 0;
  for (const Bytes bytes : exchanged) {
    all += bytes;
    number += bytes > 0 ? 1 : 0;
  }
  std::vector<SequenceStep> moved;
  std::vector<std::size_t> places;  // indices in `moved` of the exchanges that count
  for (std::size_t p = 0; p < sequence.size(); ++p) {
    const SequenceStep step = sequence[p];
    const std::size_t over = std::min<std::size_t>(exchanges, places.size());
    if (over > 0 && step.recompute && is_gather_of_parameters(graph, graph.op(step.op))) {
      const auto first = places.end() - static_cast<std::ptrdiff_t>(over);
      moved.insert(moved.begin() + static_cast<std::ptrdiff_t>(*first), step);
      std::for_each(first, places.end(), [](std::size_t& place) { ++place; });
      continue;
    }
    if (exchanged[p] > 0 && 2 * number * exchanged[p] >= all) places.push_back(moved.size());
    moved.push_back(step);
  }
  sequence = std::move(moved);
}

}  // namespace stowage
