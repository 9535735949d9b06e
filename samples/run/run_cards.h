// The cards that a run trains on: all cards of a run of one process, else one card of each process.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "samples/options/options.h"
#include "samples/run/job.h"
#include "stowage/choose_device.h"
#include "stowage/device.h"

namespace stowage::samples {

struct RunCards {
  BackendChoice choice;                       // the same backend on all ranks
  std::vector<std::unique_ptr<Device>> here;  // cards of this process; empty if devices are simulated
  std::vector<MemoryInfo> elsewhere;          // memory of the other processes' cards when these were opened
  std::int64_t on_machine = 1;  // cards of all ranks on this machine, which share its memory and cores
};

// Opens the cards that --device means (rank 0 decides `auto` for all), and leaves a core for each card on the
// machine if --threads is not given. Together. Throws InvalidInput, on all ranks: for a device that is not
// there, too few cards, different ones, two ranks on one, or no NCCL.
RunCards open_run_cards(const Options& options, Job& job);

// Returns the card of the process that is the `nth` of its machine and sees `seen` cards: the nth from
// `first` on, or the only card that its launcher has left it. Throws InvalidInput, in the name of `who`, if
// there is none.
int card_of_process(const std::string& who, int nth, int first, std::size_t seen);

// A rank's report on its card to the others.
struct CardReport {
  std::array<char, 256> name{};  // DeviceInfo's member of this name
  std::array<char, 64> uuid{};   // empty: the id is not known
  MemoryInfo memory;
};
// Throws InvalidInput, in the name of `who`, if two of the cards, in rank order, are one card or of
// two kinds.
void require_own_cards(const std::string& who, std::span<const CardReport> cards);

}  // namespace stowage::samples
