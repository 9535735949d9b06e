#include "src/communicator/local_transport.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "src/communicator/simulated_communicator.h"
#include "stowage/communicator.h"

namespace stowage::communication {
namespace {

using SteadyTime = std::chrono::steady_clock;

}  // namespace

void LocalGroup::fail(const RankFailure& failure) {
  failure_.keep(failure);
  at_call.stop();
  at_work.stop();
}

void LocalGroup::leave(int rank) {
  left_.keep({rank, {}, "it has ended its communicator"});
  at_call.stop();
  at_work.stop();
}

std::optional<RankFailure> LocalGroup::why_stopped() const {
  const auto failure = failure_.get();
  return failure ? failure : left_.get();
}

std::span<const Announcement> LocalTransport::announce(Announcement announcement) {
  const Collective collective = announcement.collective;
  const auto* const all = group_->at_call.come(rank_, std::move(announcement));
  if (all == nullptr) throw_why_stopped(collective);
  for (std::size_t rank = 1; rank < all->size(); ++rank) {
    if ((*all)[rank].collective == all->front().collective) continue;
    fail(mismatch(all->front().collective, (*all)[rank].collective, static_cast<int>(rank)));
    throw_why_stopped(collective);
  }
  return *all;
}

double LocalTransport::move(const Collective& collective, const Buffers& buffers,
                            const simulated::Arrival& arrival) {
  const auto* const all = group_->at_work.come(rank_, {buffers, arrival.time});
  if (all == nullptr) throw_why_stopped(collective);
  const auto begun = SteadyTime::now();
  receive(collective, buffers.receive, *all);
  const double seconds = peer_seconds(collective, size(), group_->peer);
  if (group_->peer.throttled && !arrival.virtual_time)
    std::this_thread::sleep_until(
        begun + std::chrono::duration_cast<SteadyTime::duration>(std::chrono::duration<double>(seconds)));
  double latest = arrival.time;
  for (const LocalGroup::Part& part : *all) latest = std::max(latest, part.time);
  group_->at_end.come(rank_, {});
  return latest + seconds;
}

void LocalTransport::receive(const Collective& collective, std::byte* to,
                             const std::vector<LocalGroup::Part>& all) const {
  for (int sender = 0; sender < size(); ++sender)
    if (const auto block =
            block_between(collective, all[static_cast<std::size_t>(sender)].buffers, sender, rank_))
      std::memcpy(to + block->to, all[static_cast<std::size_t>(sender)].buffers.send + block->from,
                  block->bytes);
}

void LocalTransport::throw_why_stopped(const Collective& collective) {
  const RankFailure why = group_->why_stopped().value_or(RankFailure{});
  fail(why);
  throw error_of(to_string(collective.kind), why);
}

}  // namespace stowage::communication

namespace stowage {

std::vector<std::unique_ptr<Communicator>> make_local_communicators(std::span<Device* const> devices,
                                                                    const CommunicatorOptions& options) {
  constexpr const char* call = "make_local_communicators";
  if (devices.empty())
    throw InvalidInput(fmt::format("{}: there are no devices; give it at least one", call));
  for (std::size_t i = 0; i < devices.size(); ++i)
    if (devices[i] == nullptr || std::find(devices.begin(), devices.begin() + static_cast<std::ptrdiff_t>(i),
                                           devices[i]) != devices.begin() + static_cast<std::ptrdiff_t>(i))
      throw InvalidInput(
          fmt::format("{}: device {} is null or was given before; give each rank one of its own", call, i));
  const auto group =
      std::make_shared<communication::LocalGroup>(static_cast<int>(devices.size()), options.peer);
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (std::size_t i = 0; i < devices.size(); ++i)
    communicators.push_back(std::make_unique<communication::SimulatedCommunicator>(
        *devices[i], std::make_unique<communication::LocalTransport>(static_cast<int>(i), group), call));
  return communicators;
}

}  // namespace stowage
