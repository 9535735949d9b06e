// Ranks of one process: their threads and their communicators.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "stowage/communicator.h"
#include "stowage/device.h"

namespace stowage {

// Calls work(rank) for each rank, rank 0 on the caller's thread and every other on its own, and returns when
// all have returned. Throws an exception that a rank has thrown: of several the one that made the others
// fail. If a thread cannot be started, calls `abandon`, since the other ranks may wait for the missing one,
// and throws std::system_error.
void on_ranks(std::size_t ranks, const std::function<void(std::size_t)>& work,
              const std::function<void(const char* why)>& abandon);

using Communicators = std::vector<std::unique_ptr<Communicator>>;

// Returns a communicator for each device: over NCCL if all devices are cards, and with `link` between them if
// all are simulated. Throws InvalidInput for devices of both kinds.
Communicators open_communicators(std::span<Device* const> devices, const CommunicatorOptions& link);
// Destroys each communicator on its own thread, because communicators over NCCL wait for each other when they
// end. REQUIRES: the communicators' work is done.
void close_communicators(Communicators& communicators) noexcept;

}  // namespace stowage
