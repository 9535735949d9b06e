#include "offload/engine/ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include "offload/recompute/bits_hash.h"
#include "stowage/error.h"
#include "stowage/launch_table.h"

namespace stowage {
namespace {

void check_share(const Graph& graph, const Communicator* communicator) {
  const BatchShare share = graph.share;
  if (communicator == nullptr && share.ranks == 1) return;
  const auto rank = static_cast<std::uint32_t>(communicator == nullptr ? 0 : communicator->rank());
  const auto ranks = static_cast<std::uint32_t>(communicator == nullptr ? 1 : communicator->size());
  if (share == BatchShare{rank, ranks}) return;
  throw InvalidInput(fmt::format(
      "the graph is that of rank {} of {}, and the communicator's is {} of {}: build the graph for it",
      share.rank, share.ranks, rank, ranks));
}

void check_collectives(const Graph& graph) {
  for (const Op& op : graph.ops) {
    if (!is_collective(op)) continue;
    bool fits =
        graph.share.ranks > 1 && op.phase != Phase::update && op.reads.size() == 1 && op.writes.size() == 1;
    if (fits) {
      const Bytes from = graph.tensor(op.reads[0]).bytes(), to = graph.tensor(op.writes[0]).bytes();
      const Bytes ranks = graph.share.ranks;
      fits = op.kernel == "gather" ? to <= ranks * from : to % ranks == 0 && from <= to;
    }
    if (!fits)
      throw InvalidInput(fmt::format("op '{}' is no {} of {} ranks: see launch_table.h", op.name, op.kernel,
                                     graph.share.ranks));
  }
}

// A rank that comes to no collective ends those of the others.
std::vector<std::uint64_t> gathered(Communicator& communicator, Device& device, std::uint64_t own) {
  try {
    std::vector<std::uint64_t> all(static_cast<std::size_t>(communicator.size()));
    all.at(static_cast<std::size_t>(communicator.rank())) = own;
    const Bytes bytes = all.size() * sizeof own;
    const DeviceMemory pinned(device, MemoryKind::pinned, bytes);
    const Lane lane(device, LaneRole::compute);
    std::memcpy(pinned.data(), all.data(), bytes);
    communicator.all_gather(lane.id(), pinned.data(), sizeof own);
    device.synchronise_lane(lane.id());
    communicator.check();
    std::memcpy(all.data(), pinned.data(), bytes);
    return all;
  } catch (const std::exception& error) {
    communicator.abort(error.what());
    throw;
  }
}

}  // namespace

void check_ranks(const Graph& graph, const Communicator* communicator) {
  check_share(graph, communicator);
  check_collectives(graph);
}

void expect_one_plan(Communicator& communicator, Device& device, const Plan& plan,
                     const EngineOptions& options) {
  const std::string text = fmt::format("{} {} {}", options.seed, options.first_step, to_json(plan));
  BitsHash own;
  own.add(std::as_bytes(std::span(text)));
  const std::vector<std::uint64_t> all = gathered(communicator, device, own.value());
  const auto other =
      std::find_if(all.begin(), all.end(), [&](std::uint64_t hash) { return hash != all.front(); });
  if (other != all.end())
    throw InvalidInput(fmt::format(
        "rank {} has another plan, seed or first step than rank 0: plan once, and give all ranks the same",
        other - all.begin()));
}

void rethrow_of_another_rank(Communicator& communicator) {
  try {
    communicator.check();
  } catch (const CommunicatorError& error) {
    if (error.failed_rank() != communicator.rank()) throw;
  }
}

}  // namespace stowage
