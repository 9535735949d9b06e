// The state of the search: items placed from the bottom up, and for every other item the lowest offset that
// is still possible. Changes can be undone, the last one first.
#pragma once

#include <limits>

#include "src/placement/instance.h"

namespace stowage::placement {

constexpr std::int64_t nowhere = std::numeric_limits<std::int64_t>::max();

// `item` has no place below `least`.
struct Bound {
  int item = 0;
  std::int64_t least = 0;
};

// Bounds that cannot all hold: if none of these items is placed below its bound, they cannot all end in time,
// whatever else is placed.
using Nogood = std::vector<Bound>;

// A section's state, which follows from its open items: the items that are not placed yet.
struct Section {
  std::int64_t floor = 0;  // lowest least offset of the open items
  std::int64_t end = 0;    // the open items cannot all end before this, even if live here alone
  // The lowest top of an open item: an item that rests on another one rests on this top or a higher one. The
  // second top is of another item.
  std::int64_t top = nowhere;
  std::int64_t second_top = nowhere;
  int lowest = -1;  // the item whose top is `top`
};

class Skyline {
 public:
  // Keeps a reference to `instance`.
  explicit Skyline(const Instance& instance);

  // Requires that nothing is placed or raised.
  void set_deadline(Deadline deadline) { deadline_ = std::move(deadline); }
  void unsettle_all();

  bool placed(int item) const { return placed_[at(item)]; }
  std::int64_t least(int item) const { return least_[at(item)]; }  // for a placed item its offset
  bool empty(int section) const { return open_[at(section)] == 0; }
  // Whether an open item is also live in the section before.
  bool joined(int section) const { return crossing_[at(section)] != 0; }
  // The next four functions are for sections with open items, while nothing is unsettled.
  std::int64_t floor(int section) const { return state_[at(section)].floor; }
  std::int64_t slack(int section) const { return deadline_.units - state_[at(section)].end; }
  // Returns the open items of the section, lower least offsets first.
  std::span<const int> open(int section);
  // Returns the lowest offset of an item that is not at its least offset, and so rests on an open item.
  // `nowhere` if it meets no open item.
  std::int64_t next(int item) const;

  // Places the item at its least offset. Requires that the floor is level there along the item. Unsettles.
  void place(int item);
  void raise(int item, std::int64_t least);  // unsettles
  // Settles. Returns false, with the reason in `why` and the section in `conflict`, if the items cannot end
  // in time.
  bool settle(Nogood& why);
  int conflict() const { return conflict_; }

  struct Mark {
    std::size_t changes = 0;
    std::size_t sections = 0;
  };
  Mark mark() const { return {changes_.size(), saved_.size()}; }
  void undo(const Mark& mark);  // settles

  // Items that were raised, or taken back from their places, and not removed from this list since.
  std::vector<int>& touched() { return touched_; }
  void forget_touched(int item) { is_touched_[at(item)] = false; }
  void touch(int item);

 private:
  struct Change {
    int item = 0;
    std::int64_t least = 0;  // value before the raise; nowhere: the item was placed
  };
  struct Saved {
    int section = 0;
    Section state;
  };

  static std::size_t at(int i) { return static_cast<std::size_t>(i); }
  int* row(int section) { return row_items_.data() + row_begin_[at(section)]; }
  int& slot(int item, int section) {
    return slots_[slot_begin_[at(item)] + at(section - instance_.items[at(item)].first)];
  }
  void take_from_row(int item, int section);
  void sort_row(int section);
  void unsettle(int section);
  bool evaluate(int section, Nogood& why);
  void explain(const int* begin, const int* end, bool late, Nogood& why) const;

  const Instance& instance_;
  Deadline deadline_;
  // A row holds the items of a section, the open ones first; an item knows its slot in each of its rows.
  std::vector<std::size_t> row_begin_, slot_begin_;
  std::vector<int> row_items_, slots_;
  std::vector<char> sorted_;  // by section
  std::vector<int> open_, crossing_;
  std::vector<Section> state_;
  std::vector<std::int64_t> least_;
  std::vector<char> placed_;
  std::vector<Change> changes_;
  std::vector<Saved> saved_;
  std::vector<int> unsettled_;
  std::vector<char> is_unsettled_;
  std::vector<int> touched_;
  std::vector<char> is_touched_;
  int conflict_ = -1;
};

}  // namespace stowage::placement
