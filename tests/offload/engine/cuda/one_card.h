// Ranks of one card: threads of this process, each with a device of its own on the card. NCCL takes no card
// twice; here what ranks send each other is copied on the card, behind events, so that all else runs as on
// several cards.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "stowage/communicator.h"

namespace stowage::testing {

// As make_local_communicators, of devices that all are on one card. Calls block until all ranks have come.
std::vector<std::unique_ptr<Communicator>> make_one_card_communicators(std::span<Device* const> devices);

}  // namespace stowage::testing
