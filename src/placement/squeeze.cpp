#include "src/placement/squeeze.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace stowage::placement {
namespace {

// If a weight grows beyond most_weight, all weights are multiplied by `lightening`, but none falls below one.
// Their sum stays finite.
constexpr double most_weight = 1e300, lightening = 1e-200;

// Sums the weights of the blocks that share bytes with [offset, offset + size), for offsets that rise from
// call to call.
class HarmSweep {
 public:
  HarmSweep(const std::vector<PlacedBlock>& by_offset, const std::vector<PlacedBlock>& by_end,
            const std::vector<double>& weights, Bytes size)
      : by_offset_(by_offset), by_end_(by_end), weights_(weights), size_(size) {}

  double at(Bytes offset) {
    for (; begun_ < by_offset_.size() && by_offset_[begun_].offset < offset + size_; ++begun_)
      harm_ += weights_[by_offset_[begun_].id];
    for (; ended_ < by_end_.size() && by_end_[ended_].end <= offset; ++ended_)
      harm_ -= weights_[by_end_[ended_].id];
    return harm_;
  }

 private:
  const std::vector<PlacedBlock>&by_offset_, &by_end_;
  const std::vector<double>& weights_;
  Bytes size_;
  std::size_t begun_ = 0, ended_ = 0;
  double harm_ = 0;
};

}  // namespace

Squeeze::Squeeze(std::span<const Block> blocks, const PlacementStrategies& strategies, Bytes alignment,
                 Bytes bound)
    : blocks_(blocks), strategies_(strategies), alignment_(alignment), standing_(blocks) {
  divide(bound);
  for (const Block& block : blocks) areas_.push_back(block.area());
  weights_ = areas_;
}

void Squeeze::divide(Bytes bound) {
  const std::vector<double>& shares = strategies_.squeeze_stages;
  stages_.resize(shares.size() + 1);
  for (std::uint32_t id = 0; id < blocks_.size(); ++id) {
    const double tightness = static_cast<double>(blocks_[id].pressure) +
                             strategies_.squeeze_size_counts * static_cast<double>(blocks_[id].aligned);
    std::size_t stage = 0;
    while (stage < shares.size() && tightness < shares[stage] * static_cast<double>(bound)) ++stage;
    stages_[stage].push_back(id);
  }
}

bool Squeeze::reach(Bytes ceiling, std::span<const Bytes> offsets, const std::function<bool()>& spend) {
  ceiling_ = ceiling;
  load(offsets);
  for (std::size_t stage = 0; stage < stages_.size(); ++stage) {
    if (stage > 0)
      for (const std::uint32_t id : stages_[stage]) wait(id);
    if (!settle(spend)) return false;
  }
  return true;
}

// Places the first stage's blocks, from the bottom up.
void Squeeze::load(std::span<const Bytes> offsets) {
  standing_.clear();
  waiting_ = {};
  waiting_area_ = 0;
  std::vector<std::uint32_t> order = stages_.front();
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return offsets[a] < offsets[b]; });
  for (const std::uint32_t id : order) {
    if (offsets[id] + blocks_[id].bytes <= ceiling_) {
      standing_.add(id, offsets[id]);
    } else {
      wait(id);
    }
  }
}

void Squeeze::wait(std::uint32_t id) {
  waiting_.push({blocks_[id].aligned, id});
  waiting_area_ += areas_[id];
}

bool Squeeze::settle(const std::function<bool()>& spend) {
  double least = waiting_area_;
  for (std::uint64_t moves = 0; !waiting_.empty(); ++moves) {
    if (moves >= strategies_.squeeze_patience || spent() || !spend()) return false;
    const std::uint32_t id = waiting_.top().id;
    waiting_.pop();
    waiting_area_ -= areas_[id];
    move(id);
    if (waiting_area_ >= least) continue;
    least = waiting_area_;
    moves = 0;
  }
  return true;
}

void Squeeze::move(std::uint32_t id) {
  standing_.look_around(id);
  if (const std::optional<Bytes> gap = find_gap(id)) {
    standing_.add(id, *gap);
    return;
  }
  const Bytes offset = find_least_harm(id);
  evict(offset, offset + blocks_[id].aligned);
  grow_heavier(id);
  standing_.add(id, offset);
}

Bytes Squeeze::highest(std::uint32_t id) const { return (ceiling_ - blocks_[id].bytes) & ~(alignment_ - 1); }

std::optional<Bytes> Squeeze::find_gap(std::uint32_t id) const {
  const Bytes size = blocks_[id].aligned;
  Bytes top = 0;
  for (const PlacedBlock& other : standing_.by_offset()) {
    if (other.offset >= top + size) break;
    top = std::max(top, other.end);
  }
  return top <= highest(id) ? std::optional(top) : std::nullopt;
}

// Returns the offset of least harm: at the bottom, on another block, under another block or under
// the ceiling.
Bytes Squeeze::find_least_harm(std::uint32_t id) {
  const Bytes size = blocks_[id].aligned, last = highest(id);
  const std::vector<PlacedBlock>& by_end = standing_.by_end();
  const std::vector<PlacedBlock>& by_offset = standing_.by_offset();
  HarmSweep on_top(by_offset, by_end, weights_, size), below = on_top;
  Bytes best = 0;
  double least = on_top.at(0);
  const auto consider = [&](Bytes offset, double harm) {
    if (harm >= least) return;
    best = offset;
    least = harm;
  };
  for (const PlacedBlock& other : by_end) {
    if (other.end > last) break;
    consider(other.end, on_top.at(other.end));
  }
  for (const PlacedBlock& other : by_offset) {
    if (other.offset < size) continue;
    if (other.offset - size > last) break;
    consider(other.offset - size, below.at(other.offset - size));
  }
  consider(last, below.at(last));
  return best;
}

void Squeeze::evict(Bytes begin, Bytes end) {
  evicted_.clear();
  for (const PlacedBlock& other : standing_.by_offset())
    if (other.offset < end && begin < other.end) evicted_.push_back(other.id);
  for (const std::uint32_t id : evicted_) {
    standing_.remove(id);
    wait(id);
  }
}

void Squeeze::grow_heavier(std::uint32_t id) {
  weights_[id] *= strategies_.squeeze_reluctance;
  if (weights_[id] < most_weight) return;
  for (double& weight : weights_) weight = std::max(1.0, weight * lightening);
}

}  // namespace stowage::placement
