#include "src/placement/mend.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <random>
#include <vector>

namespace stowage::placement {
namespace {

constexpr int loosest_step = 3, tightest_step = 7;  // 1/8 to 1/128 above the bound
constexpr std::size_t most_trials = 3000, most_trials_of_one = 250;
constexpr std::size_t fewest_free = 24, most_free = 96;

struct Range {
  Bytes begin = 0, end = 0;
};
bool by_begin(const Range& a, const Range& b) { return a.begin < b.begin; }

bool overlap(const PlacementItem& a, const PlacementItem& b) { return a.first < b.last && b.first < a.last; }

// Items taken out of a placement, to be placed between those that stay.
class Neighbourhood {
 public:
  Neighbourhood(std::span<const PlacementItem> items, Bytes alignment, const std::vector<Bytes>& offsets,
                std::vector<std::size_t> free)
      : items_(items),
        alignment_(alignment),
        free_(std::move(free)),
        stays_(free_.size()),
        placed_(free_.size()) {
    std::int64_t first = items[free_.front()].first, last = items[free_.front()].last;
    for (std::size_t index : free_) {
      first = std::min(first, items[index].first);
      last = std::max(last, items[index].last);
    }
    for (std::size_t index = 0; index < items.size(); ++index) {
      if (items[index].first >= last || items[index].last <= first) continue;
      if (!std::binary_search(free_.begin(), free_.end(), index)) add_stays(index, offsets[index]);
    }
    for (std::vector<Range>& ranges : stays_) std::sort(ranges.begin(), ranges.end(), by_begin);
  }

  // Whether all end at or below `height` after at most so many trials, which are counted down.
  bool place(Bytes height, std::size_t& trials) {
    std::vector<std::size_t> turns(free_.size());
    std::iota(turns.begin(), turns.end(), std::size_t{0});
    std::stable_sort(turns.begin(), turns.end(), [&](std::size_t a, std::size_t b) {
      return items_[free_[a]].bytes > items_[free_[b]].bytes;
    });
    std::minstd_rand dice(static_cast<std::uint32_t>(free_.size()));
    for (std::size_t left = most_trials_of_one; left > 0 && trials > 0; --left, --trials) {
      const std::size_t culprit = try_turns(turns, height);
      if (culprit == turns.size()) return true;
      const auto at = turns.begin() + static_cast<std::ptrdiff_t>(culprit);
      std::rotate(turns.begin() + static_cast<std::ptrdiff_t>(dice() % (culprit + 1)), at, at + 1);
    }
    return false;
  }
  void take(std::vector<Bytes>& offsets) const {
    for (std::size_t i = 0; i < free_.size(); ++i) offsets[free_[i]] = placed_[i].begin;
  }

 private:
  Bytes aligned(std::size_t index) const { return align_up(items_[index].bytes, alignment_); }
  void add_stays(std::size_t index, Bytes offset) {
    for (std::size_t i = 0; i < free_.size(); ++i)
      if (overlap(items_[free_[i]], items_[index])) stays_[i].push_back({offset, offset + aligned(index)});
  }

  // First fit in the order of turns. Returns the turn of the first that ends too high, or their number.
  std::size_t try_turns(const std::vector<std::size_t>& turns, Bytes height) {
    for (std::size_t turn = 0; turn < turns.size(); ++turn) {
      const std::size_t i = turns[turn];
      const PlacementItem& item = items_[free_[i]];
      taken_ = stays_[i];
      for (std::size_t before = 0; before < turn; ++before)
        if (overlap(items_[free_[turns[before]]], item)) insert(placed_[turns[before]]);
      const Bytes size = aligned(free_[i]);
      Bytes offset = 0;
      for (const Range& range : taken_) {
        if (range.begin >= offset && range.begin - offset >= size) break;
        offset = std::max(offset, range.end);
      }
      if (offset + item.bytes > height) return turn;
      placed_[i] = {offset, offset + size};
    }
    return turns.size();
  }
  void insert(const Range& range) {
    taken_.insert(std::upper_bound(taken_.begin(), taken_.end(), range, by_begin), range);
  }

  std::span<const PlacementItem> items_;
  Bytes alignment_;
  std::vector<std::size_t> free_;          // rising
  std::vector<std::vector<Range>> stays_;  // by free item: what it may not touch, by rising begin
  std::vector<Range> placed_;              // by free item
  std::vector<Range> taken_;
};

class Mender {
 public:
  Mender(std::span<const PlacementItem> items, Bytes alignment, PlacementResult& result)
      : items_(items), alignment_(alignment), result_(result) {}

  void run() {
    for (int step = loosest_step; step <= tightest_step && trials_ > 0; ++step) {
      const Bytes height = result_.lower_bound + (result_.lower_bound >> step);
      if (height < result_.peak && !reach(height)) return;
    }
  }

 private:
  Bytes end_of(std::size_t index) const { return result_.offsets[index] + items_[index].bytes; }

  bool reach(Bytes height) {
    std::vector<std::size_t> high;
    for (std::size_t index = 0; index < items_.size(); ++index)
      if (end_of(index) > height) high.push_back(index);
    std::stable_sort(high.begin(), high.end(),
                     [&](std::size_t a, std::size_t b) { return items_[a].first < items_[b].first; });
    const bool reached = std::all_of(high.begin(), high.end(), [&](std::size_t index) {
      return end_of(index) <= height || lower(index, height);
    });
    result_.peak = 0;
    for (std::size_t index = 0; index < items_.size(); ++index)
      result_.peak = std::max(result_.peak, end_of(index));
    return reached;
  }

  bool lower(std::size_t index, Bytes height) {
    for (std::size_t count = fewest_free; count <= most_free; count *= 2) {
      Neighbourhood around(items_, alignment_, result_.offsets, neighbours(index, count));
      if (!around.place(height, trials_)) continue;
      around.take(result_.offsets);
      return true;
    }
    return false;
  }

  // The item and up to so many others: those it meets, then those that they meet; the shortest lives first.
  std::vector<std::size_t> neighbours(std::size_t index, std::size_t count) const {
    std::vector<std::size_t> free{index};
    PlacementItem span = items_[index];
    for (int hop = 0; hop < 2 && free.size() < count; ++hop) {
      std::vector<std::size_t> met;
      for (std::size_t other = 0; other < items_.size(); ++other)
        if (overlap(items_[other], span) && std::find(free.begin(), free.end(), other) == free.end())
          met.push_back(other);
      std::stable_sort(met.begin(), met.end(),
                       [&](std::size_t a, std::size_t b) { return life(a) < life(b); });
      met.resize(std::min(met.size(), count - free.size()));
      for (std::size_t other : met) {
        span.first = std::min(span.first, items_[other].first);
        span.last = std::max(span.last, items_[other].last);
      }
      free.insert(free.end(), met.begin(), met.end());
    }
    std::sort(free.begin(), free.end());
    return free;
  }
  std::int64_t life(std::size_t index) const { return items_[index].last - items_[index].first; }

  std::span<const PlacementItem> items_;
  Bytes alignment_;
  PlacementResult& result_;
  std::size_t trials_ = most_trials;
};

}  // namespace

void mend(std::span<const PlacementItem> items, Bytes alignment, PlacementResult& result) {
  Mender(items, alignment, result).run();
}

}  // namespace stowage::placement
