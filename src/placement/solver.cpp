#include "src/placement/methods.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>

#include "src/placement/pressure.h"
#include "src/placement/search.h"
#include "src/placement/squeeze.h"

namespace stowage::placement {
namespace {

// Limit of Instance::cells, the sum of all items' sections, to which a search's memory is proportional.
constexpr std::uint64_t most_cells = std::uint64_t{1} << 23;
// Twice this peak still fits in 64 bits with a sign.
constexpr Bytes most_peak = Bytes{1} << 61;
constexpr std::uint64_t nodes_between_calls = 256;
constexpr double noise = 0.3;

constexpr std::array section_rules{SectionRule::conflicts, SectionRule::all_three, SectionRule::candidates,
                                   SectionRule::slack};
constexpr std::array item_rules{ItemRule::area, ItemRule::width};

bool searchable(const Instance& instance) {
  return instance.items.size() * static_cast<std::uint64_t>(instance.sections) <= most_cells;
}

// A search that runs in rounds, with more nodes each time, for placements under one capacity or
// falling capacities.
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

// A part of the items that no item connects to the rest.
struct Part {
  Instance instance;
  Bytes peak = 0;
  Bytes proven = 0;
  // Two searches, because nogoods learned under one capacity do not hold under a larger one.
  std::unique_ptr<Rounds> at_bound, above_bound;
};

// The placement so far, and the work that may still be spent on it.
class Work {
 public:
  Work(std::span<const PlacementItem> items, const PlacementOptions& options, PlacementResult& result)
      : items(items), options(options), result(result) {}

  bool answered() const {
    if (result.optimal()) return true;
    return options.capacity != 0 &&
           (result.peak <= options.capacity || result.proven_bound > options.capacity);
  }
  bool spent() const { return stopped_ || nodes_ >= options.node_limit; }
  bool ended() const { return answered() || spent(); }
  bool spend() {
    if (spent()) return false;
    ++nodes_;
    if (options.keep_going && nodes_ % nodes_between_calls == 0) {
      stopped_ = !options.keep_going({result.peak, result.proven_bound, nodes_});
    }
    return !stopped_;
  }
  std::uint64_t nodes() const { return nodes_; }

  const std::span<const PlacementItem> items;
  const PlacementOptions& options;
  PlacementResult& result;

 private:
  std::uint64_t nodes_ = 0;
  bool stopped_ = false;
};

// The next attempt's target between the peak and the bound: half of the way down, after failures a quarter,
// an eighth, and so on to a sixty-fourth, then half again.
class Aim {
 public:
  Bytes below(const PlacementResult& result) const {
    const Bytes gap = result.peak - result.proven_bound;
    return result.peak - std::max<Bytes>(1, gap >> halvings_);
  }
  void learn(bool reached) { halvings_ = reached || halvings_ == most_halvings ? 1 : halvings_ + 1; }

 private:
  static constexpr unsigned most_halvings = 6;
  unsigned halvings_ = 1;
};

// Branch and bound.
class ExactTechnique {
 public:
  explicit ExactTechnique(Work& work) : work_(work) { make_parts(); }

  // Searches for about `nodes` more nodes. Returns false if there is nothing that it can search.
  bool take_turn(std::uint64_t nodes) {
    for (Part& part : parts_) part.peak = peak_of(part);
    const std::uint64_t end = work_.nodes() + nodes;
    while (!work_.ended() && !stuck_ && work_.nodes() < end) {
      if (work_.options.capacity != 0) {
        reach(work_.options.capacity);
      } else {
        minimise();
      }
    }
    return !stuck_;
  }

 private:
  void make_parts() {
    for (Instance& instance : split(work_.items, work_.options.alignment)) {
      Part part;
      std::vector<PlacementItem> items;
      for (const std::uint32_t i : instance.indices) items.push_back(work_.items[i]);
      part.proven = Pressure(items, work_.options.alignment).bound();
      part.instance = std::move(instance);
      parts_.push_back(std::move(part));
    }
  }
  Bytes peak_of(const Part& part) const {
    Bytes peak = 0;
    for (const std::uint32_t i : part.instance.indices)
      peak = std::max(peak, work_.result.offsets[i] + work_.items[i].bytes);
    return peak;
  }

  // Tries the bound itself, which many inputs reach, then halfway to it, or less far after failures.
  void minimise() {
    reach(work_.result.proven_bound);
    if (work_.ended()) return;
    const Bytes peak = work_.result.peak;
    reach(aim_.below(work_.result));
    aim_.learn(work_.result.peak < peak);
  }

  // Places the parts that peak above `capacity` below it, as far as one round gets.
  void reach(Bytes capacity) {
    stuck_ = true;
    for (Part& part : parts_) {
      if (part.peak <= capacity) continue;
      if (!searchable(part.instance) || capacity >= most_peak) break;
      stuck_ = false;
      const Outcome outcome = search(part, capacity);
      if (outcome == Outcome::impossible) {
        part.proven = part.instance.next_peak(capacity);
        work_.result.proven_bound = std::max(work_.result.proven_bound, part.proven);
      }
      if (outcome != Outcome::placed) break;
    }
    work_.result.peak = 0;
    for (const Part& part : parts_) work_.result.peak = std::max(work_.result.peak, part.peak);
  }

  Outcome search(Part& part, Bytes capacity) {
    std::unique_ptr<Rounds>& rounds = capacity <= part.proven ? part.at_bound : part.above_bound;
    if (!rounds) rounds = std::make_unique<Rounds>(part.instance);
    const Outcome outcome = rounds->run(capacity, [this] { return work_.spend(); });
    if (outcome == Outcome::placed) take(part, rounds->offsets());
    return outcome;
  }

  void take(Part& part, const std::vector<std::int64_t>& offsets) {
    for (std::size_t i = 0; i < offsets.size(); ++i) {
      work_.result.offsets[part.instance.indices[i]] = static_cast<Bytes>(offsets[i]) * part.instance.unit;
    }
    part.peak = peak_of(part);
  }

  Work& work_;
  std::vector<Part> parts_;
  Aim aim_;
  bool stuck_ = false;
};

class SqueezeTechnique {
 public:
  explicit SqueezeTechnique(Work& work)
      : work_(work),
        blocks_(blocks_with_pressure(work)),
        squeeze_(blocks_, work.options.strategies, work.options.alignment, work.result.lower_bound) {}

  // Makes attempts until `nodes` more nodes are spent; the last attempt is completed. Returns false if it may
  // do no more.
  bool take_turn(std::uint64_t nodes) {
    const std::uint64_t end = work_.nodes() + nodes;
    while (!work_.ended() && !squeeze_.spent() && work_.nodes() < end) {
      const Bytes ceiling = std::max(aim_.below(work_.result), work_.options.capacity);
      const bool reached = squeeze_.reach(ceiling, work_.result.offsets, [this] { return work_.spend(); });
      if (reached) take(squeeze_.offsets());
      aim_.learn(reached);
    }
    return !squeeze_.spent();
  }

 private:
  static std::vector<Block> blocks_with_pressure(const Work& work) {
    std::vector<Block> blocks = to_blocks(work.items, work.options.alignment);
    const Pressure pressure(work.items, work.options.alignment);
    for (std::size_t i = 0; i < blocks.size(); ++i) blocks[i].pressure = pressure.most_within(work.items[i]);
    return blocks;
  }
  void take(const std::vector<Bytes>& offsets) {
    work_.result.offsets = offsets;
    work_.result.peak = 0;
    for (std::size_t i = 0; i < offsets.size(); ++i)
      work_.result.peak = std::max(work_.result.peak, offsets[i] + work_.items[i].bytes);
  }

  Work& work_;
  std::vector<Block> blocks_;
  Squeeze squeeze_;
  Aim aim_;
};

constexpr std::uint64_t no_end = std::uint64_t{1} << 62U;  // nodes

}  // namespace

void improve(std::span<const PlacementItem> items, const PlacementOptions& options, PlacementResult& result) {
  Work work(items, options, result);
  if (work.ended()) return;
  bool can_search = options.strategies.branch_and_bound, can_squeeze = options.strategies.squeeze;
  std::optional<ExactTechnique> exact;
  std::optional<SqueezeTechnique> squeeze;
  if (can_search) exact.emplace(work);
  for (std::uint64_t turn = options.strategies.first_turn; can_search || can_squeeze; turn *= 2) {
    turn = std::min(turn, no_end);
    if (can_search) can_search = exact->take_turn(can_squeeze ? turn : no_end);
    if (work.ended()) return;
    if (can_squeeze && !squeeze) squeeze.emplace(work);
    if (can_squeeze) can_squeeze = squeeze->take_turn(can_search ? turn : no_end);
    if (work.ended()) return;
  }
}

}  // namespace stowage::placement
