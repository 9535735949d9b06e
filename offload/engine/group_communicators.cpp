#include "offload/engine/group_communicators.h"

#include <algorithm>
#include <exception>

#include "offload/engine/rank_threads.h"
#include "stowage/simulated_device.h"

namespace stowage {
namespace {

// Cards come together through a small simulated device each.
Communicators open_nccl_communicators(std::span<Device* const> cards) {
  std::vector<std::unique_ptr<SimulatedDevice>> places;
  std::vector<Device*> all;
  for (std::size_t i = 0; i < cards.size(); ++i)
    all.push_back(places.emplace_back(open_simulated_device({.capacity = 1_MiB})).get());
  const Communicators meeting = make_local_communicators(all);
  Communicators opened(cards.size());
  const auto abandon = [&](const char* why) {
    for (const auto& communicator : meeting) communicator->abort(why);
  };
  on_ranks(
      cards.size(),
      [&](std::size_t i) {
        try {
          opened[i] = open_nccl_communicator(*cards[i], rank_in(*meeting[i], *all[i]));
          meeting[i]->barrier();  // a rank that fails at once would fail the opening of others
        } catch (const std::exception& error) {
          meeting[i]->abort(error.what());
          throw;
        }
      },
      abandon);
  return opened;
}

}  // namespace

Communicators open_communicators(std::span<Device* const> devices, const CommunicatorOptions& link) {
  const auto on_card = [](const Device* device) { return device->info().backend == "cuda"; };
  if (std::all_of(devices.begin(), devices.end(), on_card)) return open_nccl_communicators(devices);
  return make_local_communicators(devices, link);
}

void close_communicators(Communicators& communicators) noexcept {
  if (communicators.empty()) return;
  const auto abandon = [&](const char* why) {
    for (const auto& communicator : communicators)
      if (communicator) communicator->abort(why);
  };
  try {
    on_ranks(
        communicators.size(), [&](std::size_t i) { communicators[i].reset(); }, abandon);
  } catch (const std::exception&) {  // no thread could be started
    communicators.clear();
  }
}

}  // namespace stowage
