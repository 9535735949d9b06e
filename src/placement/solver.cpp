#include "src/placement/solver.h"

#include <algorithm>
#include <array>
#include <memory>

#include "src/placement/pressure.h"
#include "src/placement/search.h"

namespace stowage::placement {
namespace {

// What a search of one instance may need memory for, in sections of items.
constexpr std::uint64_t most_cells = std::uint64_t{1} << 23;
// Twice this still fits in 64 bits with a sign.
constexpr Bytes most_peak = Bytes{1} << 61;
constexpr std::uint64_t nodes_between_calls = 256;
constexpr double noise = 0.3;

constexpr std::array section_rules{SectionRule::conflicts, SectionRule::all_three, SectionRule::candidates,
                                   SectionRule::slack};
constexpr std::array item_rules{ItemRule::area, ItemRule::width};

bool searchable(const Instance& instance) {
  return instance.items.size() * static_cast<std::uint64_t>(instance.sections) <= most_cells;
}

// A search that is asked again and again, with more nodes each time, for placements under one capacity or
// falling ones.
class Rounds {
 public:
  explicit Rounds(const Instance& instance)
      : search_(instance), nodes_(std::max<std::uint64_t>(500, 2 * instance.items.size())) {}

  Outcome run(Bytes capacity, const std::function<bool()>& spend) {
    search_.set_capacity(capacity);
    for (const SectionRule section : section_rules) {
      for (const ItemRule item : item_rules) {
        const Outcome outcome = search_.run({section, item, first_ ? 0 : noise}, nodes_, spend);
        if (outcome != Outcome::stopped) return outcome;
      }
    }
    first_ = false;
    nodes_ += nodes_ / 2;
    return Outcome::stopped;
  }
  const std::vector<std::int64_t>& offsets() const { return search_.offsets(); }

 private:
  Search search_;
  std::uint64_t nodes_;
  bool first_ = true;
};

// One of the parts that no item connects.
struct Part {
  Instance instance;
  Bytes peak = 0;
  Bytes proven = 0;
  // Apart, because what is learned under one capacity does not hold under a larger one.
  std::unique_ptr<Rounds> at_bound, above_bound;
};

class Solver {
 public:
  Solver(std::span<const PlacementItem> items, const PlacementOptions& options, PlacementResult& result)
      : items_(items), options_(options), result_(result) {}

  void solve() {
    if (!answered() && !spent()) make_parts();
    while (!answered() && !spent() && !stuck_) {
      if (options_.capacity != 0) {
        reach(options_.capacity);
      } else {
        minimise();
      }
    }
  }

 private:
  bool answered() const {
    if (result_.optimal()) return true;
    return options_.capacity != 0 &&
           (result_.peak <= options_.capacity || result_.proven_bound > options_.capacity);
  }
  bool spent() const { return stopped_ || nodes_ >= options_.node_limit; }

  bool spend() {
    if (spent()) return false;
    ++nodes_;
    if (options_.keep_going && nodes_ % nodes_between_calls == 0) {
      stopped_ = !options_.keep_going({result_.peak, result_.proven_bound, nodes_});
    }
    return !stopped_;
  }

  void make_parts() {
    for (Instance& instance : split(items_, options_.alignment)) {
      Part part;
      std::vector<PlacementItem> items;
      for (const std::uint32_t i : instance.indices) {
        items.push_back(items_[i]);
        part.peak = std::max(part.peak, result_.offsets[i] + items_[i].bytes);
      }
      part.proven = Pressure(items, options_.alignment).bound();
      part.instance = std::move(instance);
      parts_.push_back(std::move(part));
    }
  }

  // By turns at the bound itself, which many inputs reach, and halfway to it, or less far after failures.
  void minimise() {
    reach(result_.proven_bound);
    if (answered() || spent()) return;
    const Bytes gap = result_.peak - result_.proven_bound;
    const Bytes peak = result_.peak;
    reach(peak - std::max<Bytes>(1, gap >> halvings_));
    halvings_ = result_.peak < peak ? 1 : std::min(halvings_ + 1, 63U);
  }

  // Places what peaks above `capacity` below it, as far as one round comes.
  void reach(Bytes capacity) {
    stuck_ = true;
    for (Part& part : parts_) {
      if (part.peak <= capacity) continue;
      if (!searchable(part.instance) || capacity >= most_peak) break;
      stuck_ = false;
      const Outcome outcome = search(part, capacity);
      if (outcome == Outcome::impossible) {
        part.proven = part.instance.next_peak(capacity);
        result_.proven_bound = std::max(result_.proven_bound, part.proven);
      }
      if (outcome != Outcome::placed) break;
    }
    result_.peak = 0;
    for (const Part& part : parts_) result_.peak = std::max(result_.peak, part.peak);
  }

  Outcome search(Part& part, Bytes capacity) {
    std::unique_ptr<Rounds>& rounds = capacity <= part.proven ? part.at_bound : part.above_bound;
    if (!rounds) rounds = std::make_unique<Rounds>(part.instance);
    const Outcome outcome = rounds->run(capacity, [this] { return spend(); });
    if (outcome == Outcome::placed) take(part, rounds->offsets());
    return outcome;
  }

  void take(Part& part, const std::vector<std::int64_t>& offsets) {
    part.peak = 0;
    for (std::size_t i = 0; i < offsets.size(); ++i) {
      const std::uint32_t index = part.instance.indices[i];
      result_.offsets[index] = static_cast<Bytes>(offsets[i]) * part.instance.unit;
      part.peak = std::max(part.peak, result_.offsets[index] + items_[index].bytes);
    }
  }

  std::span<const PlacementItem> items_;
  const PlacementOptions& options_;
  PlacementResult& result_;
  std::vector<Part> parts_;
  std::uint64_t nodes_ = 0;
  unsigned halvings_ = 1;
  bool stopped_ = false;
  bool stuck_ = false;
};

}  // namespace
void improve(std::span<const PlacementItem> items, const PlacementOptions& options, PlacementResult& result) {
  Solver(items, options, result).solve();
}

}  // namespace stowage::placement
