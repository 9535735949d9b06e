#include "src/placement/repeats.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

namespace stowage::placement {
namespace {

constexpr std::size_t window = 4;
constexpr std::size_t most_periods = 8;
constexpr std::size_t least_periods = 4;  // of a stretch

// How far each window is behind its last occurrence: the distances that occur most.
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
  std::vector<std::pair<std::size_t, std::size_t>> ranked;  // how often, the distance
  for (const auto& [distance, count] : counts) ranked.emplace_back(count, distance);
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  if (ranked.size() > most_periods) ranked.resize(most_periods);
  std::vector<std::size_t> distances;
  for (const auto& [count, distance] : ranked) distances.push_back(distance);
  return distances;
}

void add_stretches(std::span<const std::uint32_t> sequence, std::size_t period, std::vector<Repeat>& found) {
  std::size_t begin = period;  // of what stands a period before too
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

}  // namespace stowage::placement
