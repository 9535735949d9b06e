#include "samples/run/run_cards.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

#include "src/base/parallel_for.h"
#include "src/communicator/communicator_module.h"
#include "stowage/cuda_device.h"
#include "stowage/error.h"
#include "tools/calibrate/calibrate.h"
#include "tools/console/text.h"
#include "tools/console/underway.h"

namespace stowage::samples {
namespace {

const char* name_of(DeviceBackend backend) { return backend == DeviceBackend::cuda ? "cuda" : "simulated"; }

BackendChoice chosen(const std::string& name) {
  return with_prefix("--device: ", [&] { return choose_device(name); });
}

// Returns the choice of a rank that does not lead.
BackendChoice chosen_as(const std::string& leaders, const std::string& name) {
  BackendChoice choice = chosen(name == "auto" ? leaders : name);
  if (name_of(choice.backend) != leaders)
    throw InvalidInput(fmt::format("--device {}: rank 0 trains on {}; give all ranks the same", name,
                                   leaders == "cuda" ? "a card" : "a simulated device"));
  return choice;
}

BackendChoice choose_together(const Options& options, Job& job) {
  BackendChoice choice;
  job.together([&] {
    if (!job.leads()) return;
    choice = chosen(options.device);
    if (std::string_view(name_of(choice.backend)) != "cuda") job.require_simulated();
  });
  const std::string leaders = job.from_leader(name_of(choice.backend));
  job.together([&] {
    if (!job.leads()) choice = chosen_as(leaders, options.device);
  });
  return choice;
}

template <std::size_t size>
std::array<char, size> fitted(std::string_view text) {
  std::array<char, size> result{};
  std::copy_n(text.begin(), std::min(text.size(), size - 1), result.begin());
  return result;
}

// Loads NCCL before it opens the card: a rank that lacks NCCL would leave the others waiting while they
// open it.
CardReport open_own_card(const Options& options, const Job& job, RunCards& cards) {
  communication::load_module(communication::nccl_module);
  const std::vector<std::string> seen = cuda_status().cards;
  const int ordinal =
      card_of_process(devices_given(options), job.local_rank(), cards.choice.ordinal, seen.size());
  cards.here.push_back(open_cuda_device({.ordinal = ordinal}));
  const Device& card = *cards.here.front();
  return {fitted<256>(card.info().name), fitted<64>(seen[static_cast<std::size_t>(ordinal)]),
          card.memory_info()};
}

std::vector<CardReport> reports_of_all(const CardReport& own, Job& job) {
  static_assert(std::is_trivially_copyable_v<CardReport>);
  std::string text(sizeof own, '\0');
  std::memcpy(text.data(), &own, sizeof own);
  std::vector<CardReport> all;
  for (const std::string& of_rank : job.from_each(text)) {
    CardReport report;
    if (of_rank.size() != sizeof report)
      throw InvalidInput("ranks are different builds of this program: start one");
    std::memcpy(&report, of_rank.data(), sizeof report);
    all.push_back(report);
  }
  return all;
}

void open_cards_together(const Options& options, Job& job, RunCards& cards) {
  CardReport own;
  job.together([&] { own = open_own_card(options, job, cards); });
  const std::vector<CardReport> all = reports_of_all(own, job);
  job.together([&] { require_own_cards(devices_given(options), all); });
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    if (rank != static_cast<std::size_t>(job.rank())) cards.elsewhere.push_back(all[rank].memory);
  cards.on_machine = job.ranks_here();
}

}  // namespace

int card_of_process(const std::string& who, int nth, int first, std::size_t seen) {
  if (first == 0 && seen == 1) return 0;
  const int ordinal = first + nth;
  if (static_cast<std::size_t>(ordinal) < seen) return ordinal;
  throw InvalidInput(fmt::format(
      "{}: process {} of this machine, counted from 0, has no card: it sees {}{}; start no more "
      "processes on a machine than it has cards, let each see all of them or (CUDA_VISIBLE_DEVICES) one of "
      "its own, or give --device simulated",
      who, nth, seen, first == 0 ? "" : fmt::format(", of which card {} is the first to use", first)));
}

void require_own_cards(const std::string& who, std::span<const CardReport> cards) {
  const auto uuid = [&](std::size_t rank) { return std::string_view(cards[rank].uuid.data()); };
  for (std::size_t rank = 1; rank < cards.size(); ++rank)
    for (std::size_t lower = 0; lower < rank; ++lower)
      if (!uuid(rank).empty() && uuid(rank) == uuid(lower))
        throw InvalidInput(fmt::format(
            "{}: ranks {} and {} are on one card, {}: start no more processes on a machine than it has "
            "cards, let each see all of them or (CUDA_VISIBLE_DEVICES) one of its own, or give --device "
            "simulated",
            who, lower, rank, uuid(rank)));
  for (std::size_t rank = 1; rank < cards.size(); ++rank)
    require_alike(who, "the cards of ranks", 0, cards.front().name.data(), static_cast<int>(rank),
                  cards[rank].name.data());
}

RunCards open_run_cards(const Options& options, Job& job) {
  const Underway work("opening", "the device");
  RunCards cards;
  cards.choice = choose_together(options, job);
  if (cards.choice.backend != DeviceBackend::cuda) return cards;
  if (job.size() > 1) {
    open_cards_together(options, job, cards);
  } else {
    cards.here = open_cards(devices_given(options), cards.choice.ordinal, static_cast<int>(options.devices));
    cards.on_machine = options.devices;
  }
  if (options.threads == 0) leave_threads(static_cast<int>(cards.on_machine));
  return cards;
}

}  // namespace stowage::samples
