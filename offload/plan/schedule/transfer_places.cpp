#include "offload/plan/schedule/transfer_places.h"

#include <algorithm>
#include <utility>

#include "src/graph/cost.h"
#include "src/placement/windows.h"

namespace stowage {
namespace {

using placement::Block;

constexpr int passes = 2;  // a second pass can use the offsets that moved lifetimes left

class TransferPlaces {
 public:
  TransferPlaces(const Problem& problem, const Draft& draft, std::vector<Bytes> offsets, Bytes capacity)
      : problem_(problem),
        draft_(draft),
        offsets_(std::move(offsets)),
        capacity_(capacity),
        windows_(find_blocks()) {
    in_window_.resize(windows_.count());
    for (LifetimeId id = 0; id < blocks_.size(); ++id)
      if (!draft_.lifetimes[id].resident)
        for (std::size_t w = windows_.at(blocks_[id].first); w <= windows_.at(blocks_[id].last - 1); ++w)
          in_window_[w].push_back(id);
    double seconds = 0;
    for (const SequenceStep& step : draft_.sequence) {
      begins_.push_back(seconds);
      seconds += op_seconds(problem_.graph->op(step.op), *problem_.machine);
    }
    begins_.push_back(seconds);
  }

  std::vector<Bytes> find(const std::vector<double>& leads) && {
    std::vector<LifetimeId> moving;
    for (LifetimeId id = 0; id < blocks_.size(); ++id) {
      const DraftLifetime& lifetime = draft_.lifetimes[id];
      if (!lifetime.resident && (lifetime.prefetched || lifetime.offloaded)) moving.push_back(id);
    }
    std::stable_sort(moving.begin(), moving.end(),
                     [&](LifetimeId a, LifetimeId b) { return blocks_[a].aligned > blocks_[b].aligned; });
    for (int pass = 0; pass < passes; ++pass)
      for (const LifetimeId id : moving) {
        problem_.throw_if_cancelled();
        for (const double lead : leads)
          if (move(id, with_lead(id, lead))) break;
      }
    return std::move(offsets_);
  }

 private:
  const std::vector<Block>& find_blocks() {
    const Bytes alignment = Plan{}.alignment;
    for (LifetimeId id = 0; id < offsets_.size(); ++id) {
      const DraftLifetime& lifetime = draft_.lifetimes[id];
      const Bytes bytes = problem_.layout.buckets[lifetime.bucket].bytes;
      blocks_.push_back({lifetime.first, lifetime.last, bytes, align_up(bytes, alignment), 0});
      if (lifetime.resident) bottom_ = std::max(bottom_, offsets_[id] + blocks_[id].aligned);
    }
    return blocks_;
  }
  Block with_lead(LifetimeId id, double lead) const {
    Block block = blocks_[id];
    if (draft_.lifetimes[id].prefetched)
      block.first = position_before(block.first, lead * problem_.machine->h2d.seconds(block.bytes));
    if (draft_.lifetimes[id].offloaded)
      block.last = position_behind(block.last, lead * problem_.machine->d2h.seconds(block.bytes));
    return block;
  }
  // Returns the last position that begins `seconds` earlier, or the first one.
  Position position_before(Position position, double seconds) const {
    const auto at = begins_.begin() + static_cast<std::ptrdiff_t>(position);
    const auto later = std::upper_bound(begins_.begin(), at, *at - seconds);
    return later == begins_.begin() ? 0 : static_cast<Position>(later - begins_.begin() - 1);
  }
  // Returns the first position that begins `seconds` later, or the end.
  Position position_behind(Position position, double seconds) const {
    const auto at = begins_.begin() + static_cast<std::ptrdiff_t>(position);
    const auto later = std::lower_bound(at, begins_.end(), *at + seconds);
    return static_cast<Position>(std::min(later, begins_.end() - 1) - begins_.begin());
  }

  // Puts the lifetime at an offset where nothing else is during `block`: its present offset if possible, else
  // the lowest one. Returns false if there is no such offset.
  bool move(LifetimeId id, const Block& block) {
    taken_.clear();
    const std::size_t first = windows_.at(block.first), last = windows_.at(block.last - 1);
    for (std::size_t w = first; w <= last; ++w)
      for (const LifetimeId other : in_window_[w]) {
        const Block& of = blocks_[other];
        const bool is_known = w > first && windows_.starts_before(of.first, w);
        if (other != id && !is_known && of.first < block.last && block.first < of.last)
          taken_.emplace_back(offsets_[other], offsets_[other] + of.aligned);
      }
    std::sort(taken_.begin(), taken_.end());
    Bytes top = bottom_;
    std::optional<Bytes> place;
    bool may_stay = true;
    for (const auto& [begin, end] : taken_) {
      may_stay &= end <= offsets_[id] || offsets_[id] + block.aligned <= begin;
      if (!place && begin >= top + block.aligned) place = top;
      top = std::max(top, end);
    }
    if (may_stay) return true;
    if (!place && top + block.bytes <= capacity_) place = top;
    if (place) offsets_[id] = *place;
    return place.has_value();
  }

  const Problem& problem_;
  const Draft& draft_;
  std::vector<Bytes> offsets_;
  Bytes capacity_ = 0, bottom_ = 0;  // bottom_: where the residents end
  std::vector<Block> blocks_;        // block of each lifetime
  placement::Windows windows_;
  std::vector<std::vector<LifetimeId>> in_window_;
  std::vector<double> begins_;  // begin of each position in seconds, if no op waits
  // Ranges [begin, end) of other lifetimes' bytes; used by move().
  std::vector<std::pair<Bytes, Bytes>> taken_;
};

}  // namespace

std::vector<Bytes> places_for_transfers(const Problem& problem, const Draft& draft,
                                        std::vector<Bytes> offsets, Bytes capacity,
                                        const std::vector<double>& leads) {
  if (leads.empty() || offsets.empty()) return offsets;
  return TransferPlaces(problem, draft, std::move(offsets), capacity).find(leads);
}

}  // namespace stowage
