#include "offload/engine/group_communicators.h"

#include <algorithm>
#include <exception>

#include "offload/engine/rank_threads.h"
#include "stowage/channel.h"

namespace stowage {
namespace {

Communicators open_nccl_communicators(std::span<Device* const> cards) {
  const std::vector<std::shared_ptr<Channel>> channels = local_channels(static_cast<int>(cards.size()));
  Communicators opened(cards.size());
  const auto abandon = [&](const char* why) {
    for (const auto& channel : channels) channel->fail({channel->rank(), {}, why});
  };
  on_ranks(
      cards.size(),
      [&](std::size_t i) {
        try {
          opened[i] = open_nccl_communicator(*cards[i], channels[i]);
        } catch (const std::exception& error) {
          channels[i]->fail({static_cast<int>(i), {}, error.what()});
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
