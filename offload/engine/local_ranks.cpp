#include "offload/engine/local_ranks.h"

#include <algorithm>
#include <exception>
#include <system_error>
#include <thread>

#include "stowage/channel.h"
#include "stowage/error.h"

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

void on_ranks(std::size_t ranks, const std::function<void(std::size_t)>& work,
              const std::function<void(const char* why)>& abandon) {
  std::vector<std::exception_ptr> errors(ranks);
  const auto guarded = [&](std::size_t rank) {
    try {
      work(rank);
    } catch (...) {
      errors[rank] = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  try {
    for (std::size_t rank = 1; rank < ranks; ++rank) threads.emplace_back(guarded, rank);
    guarded(0);
  } catch (const std::system_error& error) {  // no thread could be started
    errors[0] = std::current_exception();
    abandon(error.what());
  }
  for (std::thread& thread : threads) thread.join();
  std::exception_ptr of_another;
  for (const std::exception_ptr& error : errors) {
    if (!error) continue;
    try {
      std::rethrow_exception(error);
    } catch (const CommunicatorError&) {
      of_another = error;
    }
  }
  if (of_another) std::rethrow_exception(of_another);
}

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
