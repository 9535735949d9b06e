#include "offload/plan/packing.h"

#include <algorithm>
#include <compare>
#include <numeric>
#include <unordered_map>

namespace stowage {
namespace {

// A moment at which some item begins; what is live then meets.
struct Moment {
  Bytes height = 0;    // the end of what is placed
  Bytes to_place = 0;  // bytes of live items that are not
};

class Packing {
 public:
  Packing(const std::vector<PackingItem>& items, Bytes limit, Bytes alignment, std::size_t most_nodes)
      : items_(items), limit_(limit), room_(align_up(limit, alignment)), nodes_left_(most_nodes) {
    std::vector<std::int64_t> times{0};
    for (const PackingItem& item : items) {
      times.push_back(item.first);
      size_.push_back(align_up(item.bytes, alignment));
    }
    std::sort(times.begin(), times.end());
    times.erase(std::unique(times.begin(), times.end()), times.end());
    moments_.resize(times.size());
    live_at_.resize(items.size());
    for (std::size_t m = 0; m < times.size(); ++m)
      for (std::size_t i = 0; i < items.size(); ++i)
        if ((items[i].first <= times[m] && times[m] < items[i].last) || times[m] < items[i].wrap) {
          live_at_[i].push_back(m);
          moments_[m].to_place += size_[i];
        }
    offsets_.assign(items.size(), 0);
    placed_.assign(items.size(), 0);
    order_.resize(items.size());
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::stable_sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) {
      return size_[a] * live_at_[a].size() > size_[b] * live_at_[b].size();
    });
  }

  std::optional<std::vector<Bytes>> run() {
    if (rest_fits(0) && place_rest(items_.size(), 0, 0)) return std::move(offsets_);
    return std::nullopt;
  }

 private:
  struct Next {
    Bytes floor = 0;
    std::size_t rank = 0;
    friend auto operator<=>(const Next&, const Next&) = default;
  };

  // None of the rest will stand lower than `lowest`.
  bool rest_fits(Bytes lowest) const {
    return std::all_of(moments_.begin(), moments_.end(), [&](const Moment& moment) {
      return moment.to_place == 0 || std::max(moment.height, lowest) + moment.to_place <= room_;
    });
  }
  // At the height of the item before, only those behind it in order_: the other way round was tried.
  std::vector<Next> choices(Bytes lowest, std::size_t first) const {
    std::vector<Next> found;
    for (std::size_t rank = 0; rank < order_.size(); ++rank) {
      const std::size_t item = order_[rank];
      if (placed_[item]) continue;
      Bytes floor = 0;
      for (std::size_t m : live_at_[item]) floor = std::max(floor, moments_[m].height);
      if (floor > lowest || (floor == lowest && rank >= first)) found.push_back({floor, rank});
    }
    std::stable_sort(found.begin(), found.end(),
                     [](const Next& a, const Next& b) { return a.floor < b.floor; });
    return found;
  }
  bool place_rest(std::size_t count, Bytes lowest, std::size_t first) {
    if (count == 0) return true;
    if (nodes_left_ == 0) return false;
    --nodes_left_;
    // What failed with more choices left fails here too.
    const Next from{lowest, first};
    const std::uint64_t key = key_of_rest();
    const auto known = failed_.find(key);
    if (known != failed_.end() && !(from < known->second)) return false;
    for (const Next& next : choices(lowest, first)) {
      if (!rest_fits(next.floor)) break;
      if (place_one(order_[next.rank], next, count)) return true;
    }
    if (nodes_left_ > 0) failed_[key] = from;
    return false;
  }
  // Of what is not placed, and of the heights that it meets.
  std::uint64_t key_of_rest() const {
    std::uint64_t key = 0;
    const auto mix = [&key](std::uint64_t value) {
      constexpr std::uint64_t golden = 0x9e3779b97f4a7c15U;
      key = (key ^ value) * golden;
      key ^= key >> 32U;
    };
    for (std::size_t i = 0; i < placed_.size(); ++i)
      if (!placed_[i]) mix(i + 1);  // no item leaves a key of 0 as it is
    for (const Moment& moment : moments_) mix(moment.to_place > 0 ? moment.height : 0);
    return key;
  }
  bool place_one(std::size_t item, const Next& next, std::size_t count) {
    if (next.floor + items_[item].bytes > limit_) return false;
    std::vector<Bytes> heights;
    for (std::size_t m : live_at_[item]) {
      heights.push_back(moments_[m].height);
      moments_[m].height = next.floor + size_[item];
      moments_[m].to_place -= size_[item];
    }
    placed_[item] = 1;
    offsets_[item] = next.floor;
    if (rest_fits(next.floor) && place_rest(count - 1, next.floor, next.rank + 1)) return true;
    placed_[item] = 0;
    for (std::size_t k = 0; k < heights.size(); ++k) {
      moments_[live_at_[item][k]].height = heights[k];
      moments_[live_at_[item][k]].to_place += size_[item];
    }
    return false;
  }

  const std::vector<PackingItem>& items_;
  Bytes limit_, room_;
  std::size_t nodes_left_;
  std::vector<Bytes> size_, offsets_;              // by item
  std::vector<std::vector<std::size_t>> live_at_;  // by item: moments
  std::vector<std::uint8_t> placed_;
  std::vector<std::size_t> order_;
  std::vector<Moment> moments_;
  std::unordered_map<std::uint64_t, Next> failed_;  // by key_of_rest
};

}  // namespace

std::optional<std::vector<Bytes>> pack(const std::vector<PackingItem>& items, Bytes limit, Bytes alignment,
                                       std::size_t most_nodes) {
  return Packing(items, limit, alignment, most_nodes).run();
}

}  // namespace stowage
