#include "src/placement/search.h"

#include <algorithm>

namespace stowage::placement {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

constexpr std::int64_t unbound = -1;

}  // namespace

Search::Search(const Instance& instance)
    : instance_(instance),
      skyline_(instance),
      nogoods_(instance.items.size()),
      preference_(instance.items.size(), 0),
      conflicts_(at(instance.sections), 1),
      merged_(instance.items.size(), unbound),
      offsets_(instance.items.size(), 0) {}

void Search::set_capacity(Bytes capacity) {
  if (capacity > capacity_) nogoods_.clear();
  capacity_ = capacity;
  Deadline deadline = instance_.deadline(capacity);
  deadline_ = deadline.units;
  skyline_.set_deadline(std::move(deadline));
}

void Search::prefer(const Strategy& strategy) {
  strategy_ = strategy;
  for (std::size_t i = 0; i < instance_.items.size(); ++i) {
    const Item& item = instance_.items[i];
    const double units = strategy.item == ItemRule::area ? static_cast<double>(item.units) : 1;
    preference_[i] = static_cast<double>(item.width()) * units;
  }
}

Outcome Search::run(const Strategy& strategy, std::uint64_t nodes, const std::function<bool()>& spend) {
  prefer(strategy);
  nodes_left_ = nodes;
  spend_ = &spend;
  skyline_.unsettle_all();
  nogoods_.trim(skyline_);
  push(0, instance_.sections);
  Step step = expand();
  while (!frames_.empty() && step != Step::stopped) {
    if (step == Step::deeper) {
      step = expand();
    } else {
      if (step == Step::failed) fail(frames_.back());
      frames_.pop_back();
      if (!frames_.empty()) step = resume(step == Step::solved);
    }
  }
  if (step == Step::solved) {
    for (int i = 0; i < static_cast<int>(offsets_.size()); ++i) offsets_[at(i)] = skyline_.least(i);
  }
  frames_.clear();
  refuted_.clear();
  pending_.clear();
  skyline_.undo({});
  return step == Step::solved   ? Outcome::placed
         : step == Step::failed ? Outcome::impossible
                                : Outcome::stopped;
}

void Search::push(int first, int last) {
  frames_.push_back({first, last, skyline_.mark(), refuted_.size(), pending_.size(), false, -1, {}});
}

// Takes one more decision in the top frame, whose earlier decisions all stand.
Search::Step Search::expand() {
  Frame& frame = frames_.back();
  if (!skyline_.settle(why_)) {
    last_conflict_ = skyline_.conflict();
    conflicts_[at(last_conflict_)] += 1;
    return Step::failed;
  }
  if (nogoods_.hold(skyline_, why_)) return Step::failed;
  if (split(frame)) return Step::deeper;
  if (frame.first == frame.last) return Step::solved;
  return branch(frame);
}

// Continues the top frame after the frame above it has ended.
Search::Step Search::resume(bool solved) {
  Frame& frame = frames_.back();
  if (!solved) return frame.is_split ? Step::failed : refute(frame);
  if (pending_.size() == frame.pending) {
    refuted_.resize(frame.refuted);
    return Step::solved;
  }
  const Range range = pending_.back();
  pending_.pop_back();
  push(range.first, range.last);
  return Step::deeper;
}

// Narrows the frame to its sections with open items. Returns true if these fall into independent ranges: then
// the tightest range is entered first, and no decision in another range can make it fail.
bool Search::split(Frame& frame) {
  const std::size_t pending = pending_.size();
  for (int s = frame.first; s < frame.last;) {
    const int first = s++;
    if (skyline_.empty(first)) continue;
    while (s < frame.last && skyline_.joined(s)) ++s;
    pending_.push_back({first, s});
  }
  if (pending_.size() <= pending + 1) {
    const Range range = pending_.size() == pending ? Range{frame.last, frame.last} : pending_.back();
    pending_.resize(pending);
    frame.first = range.first;
    frame.last = range.last;
    return false;
  }
  const auto slack = [this](const Range& range) {
    std::int64_t least = nowhere;
    for (int s = range.first; s < range.last; ++s) least = std::min(least, skyline_.slack(s));
    return least;
  };
  std::stable_sort(pending_.begin() + static_cast<std::ptrdiff_t>(pending), pending_.end(),
                   [&](const Range& a, const Range& b) { return slack(a) > slack(b); });
  frame.is_split = true;
  const Range range = pending_.back();
  pending_.pop_back();
  push(range.first, range.last);
  return true;
}

Search::Step Search::branch(Frame& frame) {
  if (nodes_left_ == 0 || !(*spend_)()) return Step::stopped;
  --nodes_left_;
  frame.item = choose_item(choose_section(frame));
  frame.before = skyline_.mark();
  skyline_.place(frame.item);
  push(frame.first, frame.last);
  return Step::deeper;
}

// Handles that the top frame's item cannot stand where it was placed, because of `why_`. If the reason holds
// without the item, the frame fails for the same reason; if not, the item goes higher.
Search::Step Search::refute(Frame& frame) {
  skyline_.undo(frame.before);
  const int item = frame.item;
  const bool depends = std::any_of(why_.begin(), why_.end(), [this](const Bound& bound) {
    return skyline_.least(bound.item) < bound.least;
  });
  if (!depends) return Step::failed;
  const Item& placed = instance_.items[at(item)];
  const std::int64_t offset = skyline_.least(item);
  for (Bound& bound : why_) {
    const Item& other = instance_.items[at(bound.item)];
    // The other item stood on the placed item because it does not fit below it.
    if (other.meets(placed) && bound.least <= offset + placed.units) {
      bound.least = std::min(bound.least, offset - other.units + 1);
    }
  }
  const std::int64_t next = skyline_.next(item);
  if (next == nowhere) {
    why_.push_back({item, offset});
    return Step::failed;
  }
  refuted_.push_back({item, offset, why_});
  skyline_.raise(item, next);
  return expand();
}

// Turns `why_` into a reason that held when the frame was entered, and learns it.
void Search::fail(const Frame& frame) {
  pending_.resize(frame.pending);
  skyline_.undo(frame.entry);
  bool is_new = false;
  for (; refuted_.size() > frame.refuted; refuted_.pop_back()) {
    const Refuted& refuted = refuted_.back();
    for (const Bound& bound : why_) {
      if (bound.item != refuted.item || bound.least <= refuted.offset) continue;
      combine(refuted, bound.least);
      is_new = true;
      break;
    }
  }
  if (is_new) nogoods_.add(why_, skyline_);
}

// Combines two reasons: `why_` with the refuted item at `bound` or higher, and refuted.why with it at its
// offset. Offsets between the two need no reason if each item of both reasons that meets it has its top at
// `bound` or higher: then the item could be let down, to its offset or onto a top.
void Search::combine(const Refuted& refuted, std::int64_t bound) {
  Nogood all;
  const auto add = [&](int item, std::int64_t least) {
    if (merged_[at(item)] == unbound) all.push_back({item, 0});
    merged_[at(item)] = std::max({merged_[at(item)], least, std::int64_t{0}});
  };
  for (const Bound& b : why_) {
    if (b.item != refuted.item) add(b.item, b.least);
  }
  for (const Bound& b : refuted.why) add(b.item, b.least);
  add(refuted.item, refuted.offset);
  for (Bound& b : all) {
    const Item& other = instance_.items[at(b.item)];
    b.least = merged_[at(b.item)];
    merged_[at(b.item)] = unbound;
    if (b.item != refuted.item && bound > refuted.offset + 1 &&
        other.meets(instance_.items[at(refuted.item)])) {
      b.least = std::max(b.least, bound - other.units);
    }
  }
  why_ = std::move(all);
}

// A pit is a range of sections with one floor, lower than its neighbours'. The next item on it is not wider,
// so each of its sections is either filled by one of its candidates or left free from the floor on.
int Search::choose_section(const Frame& frame) {
  Choice best;
  for (int first = frame.first; first < frame.last;) {
    const std::int64_t floor = skyline_.floor(first);
    int last = first + 1;
    while (last < frame.last && skyline_.floor(last) == floor) ++last;
    const bool is_pit = (first == frame.first || skyline_.floor(first - 1) > floor) &&
                        (last == frame.last || skyline_.floor(last) > floor);
    if (is_pit && rate_pit(first, last, best)) break;
    first = last;
  }
  return best.section;
}

// Returns true if a section has a single candidate and needs it: there is nothing to choose.
bool Search::rate_pit(int first, int last, Choice& best) {
  const std::int64_t floor = skyline_.floor(first);
  const bool failed_here = first <= last_conflict_ && last_conflict_ < last;
  for (int s = first; s < last; ++s) {
    const std::span<const int> open = skyline_.open(s);
    std::size_t candidates = 1;
    while (candidates < open.size() && skyline_.least(open[candidates]) == floor) ++candidates;
    if (candidates == 1) {
      const std::int64_t second = open.size() == 1 ? nowhere : skyline_.least(open[1]);
      const std::int64_t slack = skyline_.slack(s);
      if (second == nowhere || second - floor > slack) {
        const std::int64_t next = std::min(second, skyline_.next(open[0]));
        if (next == nowhere || next - floor > slack) {
          best.section = s;
          return true;
        }
      }
    }
    // The section of the last failure goes first: otherwise its cause would be found again below each choice
    // elsewhere (Lecoutre and others, "Reasoning from last conflict(s) in constraint programming", 2009).
    const double rated = score(s, static_cast<int>(candidates)) + (failed_here ? 1e6 : 0);
    if (best.section < 0 || rated > best.score) best = {s, rated};
  }
  return false;
}

// Counts conflicts as weights: Boussemart and others, "Boosting systematic search by weighting constraints",
// 2004.
double Search::score(int section, int candidates) const {
  const double slack = static_cast<double>(skyline_.slack(section)) / static_cast<double>(deadline_ + 1);
  const double weight = conflicts_[at(section)];
  switch (strategy_.section) {
    case SectionRule::conflicts:
      return weight / candidates;
    case SectionRule::all_three:
      return -candidates * (slack + 1e-3) / weight;
    case SectionRule::candidates:
      return -1e3 * candidates - slack;
    case SectionRule::slack:
      return -1e3 * slack - candidates;
  }
  return 0;
}

int Search::choose_item(int section) {
  int best = -1;
  double most = 0;
  const std::int64_t floor = skyline_.floor(section);
  for (const int item : skyline_.open(section)) {
    if (skyline_.least(item) != floor) break;
    double preference = preference_[at(item)];
    if (strategy_.noise > 0) preference *= 1 + strategy_.noise * static_cast<double>(random_() >> 54U) / 1024;
    if (best >= 0 && preference <= most) continue;
    best = item;
    most = preference;
  }
  return best;
}

}  // namespace stowage::placement
