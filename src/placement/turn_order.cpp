#include "src/placement/turn_order.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <tuple>

namespace stowage::placement {
namespace {

constexpr std::size_t window = 4;
constexpr std::size_t most_periods = 8;
constexpr std::size_t least_periods = 4;  // least periods of a stretch

// Returns the most frequent distances between windows of equal elements.
std::vector<std::size_t> frequent_distances(std::span<const std::uint32_t> sequence) {
  std::map<std::array<std::uint32_t, window>, std::size_t> last;
  std::map<std::size_t, std::size_t> counts;
  for (std::size_t i = 0; i + window <= sequence.size(); ++i) {
    std::array<std::uint32_t, window> here{};
    std::copy_n(sequence.begin() + static_cast<std::ptrdiff_t>(i), window, here.begin());
    const auto [known, added] = last.emplace(here, i);
    if (!added) ++counts[i - known->second];
    known->second = i;
  }
  std::vector<std::pair<std::size_t, std::size_t>> ranked;  // pairs of frequency and distance
  for (const auto& [distance, count] : counts) ranked.emplace_back(count, distance);
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  if (ranked.size() > most_periods) ranked.resize(most_periods);
  std::vector<std::size_t> distances;
  for (const auto& [count, distance] : ranked) distances.push_back(distance);
  return distances;
}

void add_stretches(std::span<const std::uint32_t> sequence, std::size_t period, std::vector<Repeat>& found) {
  std::size_t begin = period;  // begin of the elements that equal the ones a period earlier
  for (std::size_t i = period; i <= sequence.size(); ++i) {
    if (i < sequence.size() && sequence[i] == sequence[i - period]) continue;
    if (i - begin >= (least_periods - 1) * period) found.push_back({begin - period, i, period});
    begin = i + 1;
  }
}

}  // namespace

std::vector<Repeat> find_repeats(std::span<const std::uint32_t> sequence) {
  std::vector<Repeat> all;
  for (std::size_t period : frequent_distances(sequence)) add_stretches(sequence, period, all);
  std::sort(all.begin(), all.end(), [](const Repeat& a, const Repeat& b) {
    return std::tuple(b.end - b.begin, a.period, a.begin) < std::tuple(a.end - a.begin, b.period, b.begin);
  });
  std::vector<Repeat> taken;
  for (const Repeat& repeat : all)
    if (std::none_of(taken.begin(), taken.end(), [&](const Repeat& other) {
          return repeat.begin < other.end && other.begin < repeat.end;
        }))
      taken.push_back(repeat);
  std::sort(taken.begin(), taken.end(), [](const Repeat& a, const Repeat& b) { return a.begin < b.begin; });
  return taken;
}

TurnOrder::TurnOrder(std::span<const PlacementItem> items) : items_(items), order_(items.size()) {
  std::iota(order_.begin(), order_.end(), 0U);
  std::stable_sort(order_.begin(), order_.end(), [&](std::uint32_t a, std::uint32_t b) {
    return std::tuple(items[a].first, items[b].bytes) < std::tuple(items[b].first, items[a].bytes);
  });
  repeats_ = find_repeats(kinds());
}

// Returns a number for each turn, equal where items are alike.
std::vector<std::uint32_t> TurnOrder::kinds() const {
  std::map<std::tuple<Bytes, std::int64_t, std::int64_t>, std::uint32_t> known;
  std::vector<std::uint32_t> kinds;
  std::int64_t before = 0;
  for (std::uint32_t id : order_) {
    const PlacementItem& item = items_[id];
    const std::tuple kind(item.bytes, item.last - item.first, item.first - before);
    kinds.push_back(known.emplace(kind, static_cast<std::uint32_t>(known.size())).first->second);
    before = item.first;
  }
  return kinds;
}

std::int64_t TurnOrder::shift(std::size_t from, std::size_t to) const {
  return items_[order_[to]].first - items_[order_[from]].first;
}

const Repeat* TurnOrder::stretch_at(std::size_t turn) const {
  const auto behind = std::upper_bound(repeats_.begin(), repeats_.end(), turn,
                                       [](std::size_t at, const Repeat& each) { return at < each.begin; });
  return behind == repeats_.begin() || turn >= std::prev(behind)->end ? nullptr : &*std::prev(behind);
}

std::size_t TurnOrder::apart(std::size_t periods) const {
  std::size_t turns = items_.size();
  for (const Repeat& repeat : repeats_)
    turns -= repeat.end - repeat.begin - std::min(repeat.end - repeat.begin, periods * repeat.period);
  return std::max<std::size_t>(turns, 1);
}

std::size_t TurnOrder::live_on_average() const {
  std::int64_t length = 0, end = 0;
  for (const PlacementItem& item : items_) {
    length += item.last - item.first;
    end = std::max(end, item.last);
  }
  const std::int64_t begin = order_.empty() ? 0 : items_[order_.front()].first;
  return static_cast<std::size_t>(end > begin ? length / (end - begin) : 0) + 1;
}

}  // namespace stowage::placement
