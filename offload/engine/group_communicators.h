// Communicators between the devices of one process.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "stowage/communicator.h"
#include "stowage/device.h"

namespace stowage {

using Communicators = std::vector<std::unique_ptr<Communicator>>;

// One for each device: all of them cards, over NCCL, or all simulated, with `link` between them. Those over
// NCCL end together: each is destroyed on a thread of its own. Throws InvalidInput for devices of both kinds.
Communicators open_communicators(std::span<Device* const> devices, const CommunicatorOptions& link);
// Ends them so, once their work is done.
void close_communicators(Communicators& communicators) noexcept;

}  // namespace stowage
