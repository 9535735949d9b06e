
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "src/placement/methods.h"
#include "src/placement/turn_order.h"

namespace stowage::placement {
namespace {

struct Stay {
  Bytes begin = 0, end = 0;
  std::int64_t last = 0;
  double beside_below = 0;  // of_neighbours() of this stay and the next one below
};
std::uint64_t key_of(Bytes begin, std::int64_t last) {
  constexpr std::uint64_t golden = 0x9e3779b97f4a7c15U, odd = 0xbf58476d1ce4e5b9U;
  std::uint64_t key = begin * golden + static_cast<std::uint64_t>(last);
  key = (key ^ (key >> 31U)) * odd;
  return key ^ (key >> 29U);
}

// One item's chosen place, and the choice before it in its partial placement.
struct Node {
  std::int32_t parent = -1;
  std::uint32_t item = 0;
  Bytes offset = 0;
};

// A partial placement: the live items, by rising addresses.
struct Partial {
  std::vector<Stay> live;
  double score = 0;
  std::uint64_t key = 0;  // hash of the live stays
  std::int32_t node = -1;
};

struct Candidate {
  std::size_t partial = 0;
  std::size_t before = 0;  // index of the stay next above the offset
  Bytes offset = 0;
  double beside_below = 0, beside_above = 0;
};
// A set of keys that is cleared quickly.
class KeySet {
 public:
  explicit KeySet(std::size_t most) : slots_(std::bit_ceil(4 * most)) {}  // most keys at one time
  void clear() { ++round_; }
  // Adds the key; returns whether it is new.
  bool add(std::uint64_t key) {
    const std::size_t slots = slots_.size();
    for (std::size_t at = key % slots;; at = (at + 1) % slots) {
      if (slots_[at].round != round_) {
        slots_[at] = {key, round_};
        return true;
      }
      if (slots_[at].key == key) return false;
    }
  }

 private:
  struct Slot {
    std::uint64_t key = 0, round = 0;
  };
  std::vector<Slot> slots_;
  std::uint64_t round_ = 1;
};

// A candidate's score and index.
using Ranked = std::pair<double, std::size_t>;

class TimeBeam {
 public:
  TimeBeam(std::span<const PlacementItem> items, const BeamOptions& options)
      : options_(options),
        items_(items),
        scale_(1 / static_cast<double>(std::max<Bytes>(options.height, 1))),
        turns_(items),
        most_work_(2 * options.width * items.size()),
        wide_(options.width * std::clamp<std::size_t>(std::min(items.size() / turns_.apart(periods_apart),
                                                               many_live / turns_.live_on_average()),
                                                      1, most_wider)),
        keys_(wide_ << most_tries) {}

  std::optional<std::vector<Bytes>> run() {
    partials_.push_back({{}, of_gap(0, options_.height), 1, -1});
    for (std::size_t turn = 0; turn < turns_.count();) {
      if (turn % stop_distance == 0) remember(turn);
      if (turn >= careful_until_) width_ = width_at(turn);
      if (const std::size_t later = repeat(turn); later > turn) {
        remember(turn = later);
        continue;
      }
      work_ += width_;
      if (place(turns_.item(turn))) {
        ++turn;
        ++searched_;
      } else if (!go_back(turn)) {
        return std::nullopt;
      }
    }
    std::vector<Bytes> offsets(items_.size());
    for (std::int32_t node = partials_.front().node; node >= 0; node = nodes_[at(node)].parent)
      offsets[nodes_[at(node)].item] = nodes_[at(node)].offset;
    return offsets;
  }

 private:
  static std::size_t at(std::int32_t node) { return static_cast<std::size_t>(node); }
  // Returns the width at a turn: more placements are carried along outside of repeats and in their first
  // periods, until placements may repeat, which is not far.
  std::size_t width_at(std::size_t turn) const {
    const Repeat* stretch = turns_.stretch_at(turn);
    const bool within = stretch != nullptr && turn >= stretch->begin + periods_apart * stretch->period &&
                        turn + stretch->period < stretch->end;
    return within ? options_.width : wide_;
  }

  // A stop: the partial placements that were carried along just before a turn.
  struct Stop {
    std::size_t turn = 0;
    std::size_t searched = 0;  // turns so far, without those that repeated a cycle
    std::vector<Partial> partials;
  };
  void remember(std::size_t turn) {
    if (stops_.empty() || stops_.back().turn < turn) stops_.push_back({turn, searched_, partials_});
  }

  // Goes back because no partial placement has room for this turn's item: more placements are carried along
  // from some turns before it, and if that is not enough, still more from still earlier.
  bool go_back(std::size_t& turn) {
    tries_ = turn <= failed_ ? tries_ + 1 : 1;
    const std::size_t not_searched = turn - searched_;
    if (tries_ > most_tries || work_ + not_searched * options_.width >= most_work_) return false;
    failed_ = std::max(failed_, turn);
    const std::size_t width_here = width_at(turn);
    careful_until_ = failed_ + stop_distance;
    const std::size_t back = stop_distance << (2 * tries_ - 2);
    while (stops_.size() > 1 && stops_.back().searched + back > searched_) stops_.pop_back();
    turn = stops_.back().turn;
    searched_ = stops_.back().searched;
    width_ = std::min(std::max(width_here, width_at(turn)) << tries_, options_.width << most_tries << 1U);
    partials_ = stops_.back().partials;
    find_first_end();
    return true;
  }

  // In a repeat: placements whose live bytes are those of some periods before continue as they did then,
  // without a search. Returns the turn from which to search again: some periods before the repeat ends.
  std::size_t repeat(std::size_t turn) {
    const Repeat* stretch = turns_.stretch_at(turn);
    if (stretch == nullptr || (turn - stretch->begin) % stretch->period != 0) return turn;
    expire(items_[turns_.item(turn)].first);
    std::erase_if(seen_, [&](const Stop& stop) { return stop.turn < stretch->begin || stop.turn >= turn; });
    for (std::size_t i = seen_.size(); i-- > 0;) {
      const std::size_t cycle = turn - seen_[i].turn;
      const std::size_t cycles = (stretch->end - turn) / cycle;
      if (cycles <= searched_cycles) continue;
      const Cycles ahead{cycle, cycles - searched_cycles, turns_.shift(seen_[i].turn, turn)};
      if (ahead.shift > 0 && continue_cycle(seen_[i].partials, turn, ahead))
        return turn + ahead.length * ahead.count;
    }
    if (seen_.size() == most_seen) seen_.erase(seen_.begin());
    seen_.push_back({turn, searched_, partials_});
    return turn;
  }
  struct Cycles {
    std::size_t length = 0, count = 0;  // turns of a cycle, and number of cycles
    std::int64_t shift = 0;             // positions by which a cycle moves on
  };
  // Continues the best of the placements whose live bytes are those of one cycle before. Returns false if
  // there is no such placement.
  bool continue_cycle(const std::vector<Partial>& before, std::size_t turn, const Cycles& ahead) {
    next_.clear();
    if (nodes_.size() > 2 * most_work_) return false;
    for (const Partial& partial : partials_) {
      std::int32_t node = partial.node;
      for (std::size_t i = 0; i < ahead.length; ++i) node = nodes_[at(node)].parent;
      const auto from =
          std::lower_bound(before.begin(), before.end(), node,
                           [](const Partial& other, std::int32_t wanted) { return other.node < wanted; });
      if (from == before.end() || from->node != node || !stands_as(partial, *from, ahead.shift)) continue;
      next_.push_back(partial);
      repeat_choices(next_.back(), *from, turn, ahead);
      if (next_.size() == most_repeated) break;
    }
    if (next_.empty()) return false;
    std::swap(partials_, next_);
    find_first_end();
    return true;
  }
  // Whether the same bytes are live, for as long or up to the same position. A stay that ends at the same
  // position does not collide with items that are placed as before, since it did not then.
  static bool stands_as(const Partial& now, const Partial& before, std::int64_t shift) {
    return std::equal(now.live.begin(), now.live.end(), before.live.begin(), before.live.end(),
                      [&](const Stay& a, const Stay& b) {
                        const bool as_long = a.last == b.last + shift || a.last == b.last;
                        return a.begin == b.begin && a.end == b.end && as_long;
                      });
  }
  void repeat_choices(Partial& partial, const Partial& before, std::size_t turn, const Cycles& ahead) {
    std::vector<Bytes> offsets(ahead.length);
    std::int32_t node = partial.node;
    for (std::size_t i = ahead.length; i-- > 0; node = nodes_[at(node)].parent)
      offsets[i] = nodes_[at(node)].offset;
    for (std::size_t i = 0; i < ahead.length * ahead.count; ++i) {
      nodes_.push_back({partial.node, turns_.item(turn + i), offsets[i % ahead.length]});
      partial.node = static_cast<std::int32_t>(nodes_.size() - 1);
    }
    const std::int64_t moved = ahead.shift * static_cast<std::int64_t>(ahead.count);
    for (std::size_t i = 0; i < partial.live.size(); ++i)
      if (partial.live[i].last != before.live[i].last) partial.live[i].last += moved;
    judge(partial);
  }
  // Computes score and key from the live items.
  void judge(Partial& partial) const {
    partial.score = 0;
    partial.key = 0;
    Bytes end = 0;
    for (std::size_t i = 0; i < partial.live.size(); ++i) {
      Stay& stay = partial.live[i];
      stay.beside_below = i > 0 ? of_neighbours(partial.live[i - 1], stay) : 0;
      partial.score += of_gap(end, stay.begin) - stay.beside_below;
      partial.key += key_of(stay.begin, stay.last);
      end = stay.end;
    }
    partial.score += of_gap(end, options_.height);
  }

  bool place(std::uint32_t id) {
    expire(items_[id].first);
    collect(items_[id]);
    if (candidates_.empty()) return false;
    keep_best(id);
    return true;
  }

  // One partial placement is enough to look at: all have the same items live.
  void find_first_end() {
    first_end_ = std::numeric_limits<std::int64_t>::max();
    for (const Stay& stay : partials_.front().live) first_end_ = std::min(first_end_, stay.last);
  }
  void expire(std::int64_t now) {
    if (first_end_ > now) return;
    for (Partial& partial : partials_) expire(partial, now);
    find_first_end();
  }
  void expire(Partial& partial, std::int64_t now) const {
    partial.score = 0;
    std::size_t kept = 0;
    Bytes end = 0;
    bool parted = false;
    for (const Stay& stay : partial.live) {
      if (stay.last <= now) {
        partial.key -= key_of(stay.begin, stay.last);
        parted = true;
        continue;
      }
      Stay& moved = partial.live[kept] = stay;
      if (parted) moved.beside_below = kept > 0 ? of_neighbours(partial.live[kept - 1], moved) : 0;
      parted = false;
      partial.score += of_gap(end, moved.begin) - moved.beside_below;
      end = moved.end;
      ++kept;
    }
    partial.live.resize(kept);
    partial.score += of_gap(end, options_.height);
  }
  double of_gap(Bytes begin, Bytes end) const {
    const double gap = static_cast<double>(end - begin) * scale_;
    return gap * gap;
  }
  double of_neighbours(const Stay& a, const Stay& b) const {
    constexpr double half_as_bad = 10;  // positions between two ends that cost half of the most
    const double apart = std::abs(static_cast<double>(a.last - b.last));
    const Bytes smaller = std::min(a.end - a.begin, b.end - b.begin);
    return options_.coherence * static_cast<double>(smaller) * scale_ * apart / (apart + half_as_bad);
  }

  void collect(const PlacementItem& item) {
    candidates_.clear();
    ranked_.clear();
    const Bytes size = align_up(item.bytes, options_.alignment);
    for (std::size_t p = 0; p < partials_.size(); ++p) {
      const std::vector<Stay>& live = partials_[p].live;
      Bytes begin = 0;
      for (std::size_t next = 0; next <= live.size(); ++next) {
        const Bytes end =
            next < live.size() ? live[next].begin : options_.height / options_.alignment * options_.alignment;
        if (end >= begin && end - begin >= size)
          add_candidates(p, next, {begin, begin + size, item.last, 0}, end);
        if (next < live.size()) begin = live[next].end;
      }
    }
  }
  // Adds the candidates at the bottom of a gap, where `lowest` is, and at its top, `end`.
  void add_candidates(std::size_t p, std::size_t next, const Stay& lowest, Bytes end) {
    const Partial& partial = partials_[p];
    const Stay* below = next > 0 ? &partial.live[next - 1] : nullptr;
    const Stay* above = next < partial.live.size() ? &partial.live[next] : nullptr;
    const Bytes ceiling = above ? above->begin : options_.height, size = lowest.end - lowest.begin;
    const double without = partial.score - of_gap(lowest.begin, ceiling);
    const double with_below = below ? of_neighbours(*below, lowest) : 0;
    const double with_above = above ? of_neighbours(lowest, *above) : 0;
    const double parted = above ? above->beside_below : 0;
    const auto add = [&](Bytes offset) {
      const double score = without + of_gap(lowest.begin, offset) + of_gap(offset + size, ceiling) -
                           with_below - with_above + parted;
      ranked_.emplace_back(score, candidates_.size());
      candidates_.push_back({p, next, offset, with_below, with_above});
    };
    add(lowest.begin);
    if (end - lowest.begin > size) add(end - size);
  }

  // Sorts the best unsorted candidates behind the `sorted` ones; returns how many are sorted then.
  std::size_t sort_more(std::size_t sorted) {
    const auto better = [](const Ranked& a, const Ranked& b) {
      return a.first != b.first ? a.first > b.first : a.second < b.second;
    };
    const std::size_t end = std::min(ranked_.size(), sorted + width_);
    const auto from = ranked_.begin() + static_cast<std::ptrdiff_t>(sorted);
    const auto to = ranked_.begin() + static_cast<std::ptrdiff_t>(end);
    if (to != ranked_.end()) std::nth_element(from, to, ranked_.end(), better);
    std::sort(from, to, better);
    return end;
  }
  // Keeps the best candidates, one for each set of live bytes.
  void keep_best(std::uint32_t id) {
    constexpr std::size_t spare = 3;  // room for candidates with the same live bytes
    const Bytes size = align_up(items_[id].bytes, options_.alignment);
    std::size_t kept = 0;
    keys_.clear();
    const std::size_t most = std::min(ranked_.size(), spare * width_);
    std::size_t sorted = 0;
    for (std::size_t turn = 0; turn < most && kept < width_; ++turn) {
      if (turn == sorted) sorted = sort_more(sorted);
      const auto [score, number] = ranked_[turn];
      const Candidate& candidate = candidates_[number];
      const Partial& from = partials_[candidate.partial];
      const std::uint64_t key = from.key + key_of(candidate.offset, items_[id].last);
      if (!keys_.add(key)) continue;
      nodes_.push_back({from.node, id, candidate.offset});
      if (next_.size() == kept) next_.emplace_back();
      Partial& next = next_[kept++];
      const auto middle = from.live.begin() + static_cast<std::ptrdiff_t>(candidate.before);
      next.live.assign(from.live.begin(), middle);
      next.live.push_back(
          {candidate.offset, candidate.offset + size, items_[id].last, candidate.beside_below});
      next.live.insert(next.live.end(), middle, from.live.end());
      if (middle != from.live.end()) next.live[candidate.before + 1].beside_below = candidate.beside_above;
      next.score = score;
      next.key = key;
      next.node = static_cast<std::int32_t>(nodes_.size() - 1);
    }
    next_.resize(kept);
    first_end_ = std::min(first_end_, items_[id].last);
    std::swap(partials_, next_);
  }

  static constexpr std::size_t stop_distance = 16;  // turns
  static constexpr std::size_t most_tries = 3;      // attempts to pass one turn
  static constexpr std::size_t most_seen = 4;       // remembered begins of periods in a repeat
  static constexpr std::size_t most_repeated = 64;  // placements that repeat a cycle
  static constexpr std::size_t periods_apart = 8, most_wider = 4;
  // Average number of live items from which on only `width` placements are carried along.
  static constexpr std::size_t many_live = 96;
  static constexpr std::size_t searched_cycles = 1;  // cycles searched before a repeat ends

  BeamOptions options_;
  std::span<const PlacementItem> items_;
  double scale_;
  TurnOrder turns_;
  std::size_t most_work_, work_ = 0;  // placements carried along, over all turns
  std::size_t wide_, width_ = 0;      // most placements that are carried along, and those carried now
  std::size_t searched_ = 0;          // turns so far, without those that repeated a cycle
  std::size_t failed_ = 0, careful_until_ = 0;  // turns
  std::size_t tries_ = 0;                       // attempts to pass `failed_`
  std::vector<Stop> stops_, seen_;
  std::vector<Partial> partials_, next_;                               // ordered by node
  std::int64_t first_end_ = std::numeric_limits<std::int64_t>::max();  // end of the first live item
  KeySet keys_;                                                        // keys of the kept candidates
  std::vector<Candidate> candidates_;
  std::vector<Ranked> ranked_;
  std::vector<Node> nodes_;
};

}  // namespace

std::optional<std::vector<Bytes>> place_in_time(std::span<const PlacementItem> items,
                                                const BeamOptions& options) {
  check_items(items, options.alignment);
  return TimeBeam(items, options).run();
}

}  // namespace stowage::placement
