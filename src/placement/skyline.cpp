#include "src/placement/skyline.h"

#include <algorithm>

namespace stowage::placement {

Skyline::Skyline(const Instance& instance) : instance_(instance) {
  const std::size_t items = instance.items.size();
  const std::size_t sections = at(instance.sections);
  row_begin_.assign(sections + 1, 0);
  slot_begin_.assign(items + 1, 0);
  crossing_.assign(sections + 1, 0);
  for (std::size_t i = 0; i < items; ++i) {
    const Item& item = instance.items[i];
    slot_begin_[i + 1] = slot_begin_[i] + at(item.width());
    for (int s = item.first; s < item.last; ++s) {
      ++row_begin_[at(s) + 1];
      if (s > item.first) ++crossing_[at(s)];
    }
  }
  for (std::size_t s = 0; s < sections; ++s) row_begin_[s + 1] += row_begin_[s];
  row_items_.resize(row_begin_.back());
  slots_.resize(slot_begin_.back());
  open_.assign(sections, 0);
  sorted_.assign(sections, 0);
  state_.resize(sections);
  least_.assign(items, 0);
  placed_.assign(items, 0);
  is_touched_.assign(items, 0);
  is_unsettled_.assign(sections, 0);
  for (int i = 0; i < static_cast<int>(items); ++i) {
    for (int s = instance.items[at(i)].first; s < instance.items[at(i)].last; ++s) {
      slot(i, s) = open_[at(s)];
      row(s)[open_[at(s)]++] = i;
    }
  }
}

void Skyline::unsettle_all() {
  for (int s = 0; s < instance_.sections; ++s) unsettle(s);
}

std::span<const int> Skyline::open(int section) {
  if (!sorted_[at(section)]) sort_row(section);
  return {row(section), at(open_[at(section)])};
}

std::int64_t Skyline::next(int item) const {
  std::int64_t lowest = nowhere;
  for (int s = instance_.items[at(item)].first; s < instance_.items[at(item)].last; ++s) {
    const Section& section = state_[at(s)];
    lowest = std::min(lowest, section.lowest == item ? section.second_top : section.top);
  }
  return lowest == nowhere ? nowhere : std::max(lowest, least(item) + 1);
}

void Skyline::unsettle(int section) {
  sorted_[at(section)] = 0;
  if (is_unsettled_[at(section)]) return;
  is_unsettled_[at(section)] = 1;
  unsettled_.push_back(section);
}

void Skyline::touch(int item) {
  if (is_touched_[at(item)]) return;
  is_touched_[at(item)] = 1;
  touched_.push_back(item);
}

void Skyline::take_from_row(int item, int section) {
  int* items = row(section);
  const int last = --open_[at(section)];
  const int hole = slot(item, section);
  items[hole] = items[last];
  slot(items[hole], section) = hole;
  items[last] = item;
  slot(item, section) = last;
}

void Skyline::place(int item) {
  const Item& placed = instance_.items[at(item)];
  placed_[at(item)] = 1;
  changes_.push_back({item, nowhere});
  for (int s = placed.first; s < placed.last; ++s) {
    take_from_row(item, s);
    if (s > placed.first) --crossing_[at(s)];
    unsettle(s);
  }
  const std::int64_t top = least(item) + placed.units;
  for (int s = placed.first; s < placed.last; ++s) {
    const int* items = row(s);
    for (int k = 0; k < open_[at(s)]; ++k) raise(items[k], top);
  }
}

void Skyline::raise(int item, std::int64_t least) {
  if (least_[at(item)] >= least) return;
  changes_.push_back({item, least_[at(item)]});
  least_[at(item)] = least;
  touch(item);
  for (int s = instance_.items[at(item)].first; s < instance_.items[at(item)].last; ++s) unsettle(s);
}

void Skyline::undo(const Mark& mark) {
  for (; changes_.size() > mark.changes; changes_.pop_back()) {
    const Change& change = changes_.back();
    const Item& item = instance_.items[at(change.item)];
    for (int s = item.first; s < item.last; ++s) sorted_[at(s)] = 0;
    if (change.least != nowhere) {
      least_[at(change.item)] = change.least;
      continue;
    }
    placed_[at(change.item)] = 0;
    touch(change.item);
    for (int s = item.first; s < item.last; ++s) {
      ++open_[at(s)];  // the item taken last lies just behind the open ones
      if (s > item.first) ++crossing_[at(s)];
    }
  }
  for (; saved_.size() > mark.sections; saved_.pop_back()) {
    state_[at(saved_.back().section)] = saved_.back().state;
  }
  for (const int s : unsettled_) is_unsettled_[at(s)] = 0;
  unsettled_.clear();
}

// Sorts by insertion, as few items have changed their places since the last time.
void Skyline::sort_row(int section) {
  int* items = row(section);
  for (int k = 1; k < open_[at(section)]; ++k) {
    const int item = items[k];
    const std::int64_t key = least(item);
    int hole = k;
    for (; hole > 0 && least(items[hole - 1]) > key; --hole) {
      items[hole] = items[hole - 1];
      slot(items[hole], section) = hole;
    }
    items[hole] = item;
    slot(item, section) = hole;
  }
  sorted_[at(section)] = 1;
}

bool Skyline::settle(Nogood& why) {
  while (!unsettled_.empty()) {
    const int section = unsettled_.back();
    unsettled_.pop_back();
    is_unsettled_[at(section)] = 0;
    if (!evaluate(section, why)) {
      conflict_ = section;
      return false;
    }
  }
  return true;
}

// Stacks the section's items as low as they may lie: the least height that the section needs.
bool Skyline::evaluate(int section, Nogood& why) {
  sort_row(section);
  saved_.push_back({section, state_[at(section)]});
  Section state;
  const int* items = row(section);
  const int* busy_since = items;
  bool late = false;
  for (const int* i = items; i != items + open_[at(section)]; ++i) {
    if (least(*i) > state.end) {
      state.end = least(*i);
      busy_since = i;
      late = false;
    }
    const std::int64_t units = instance_.items[at(*i)].units;
    const std::int64_t top = least(*i) + units;
    state.end += units;
    late = late || deadline_.late[at(*i)];
    if (state.end > deadline_.units + (late ? 1 : 0)) {
      explain(busy_since, i + 1, late, why);
      return false;
    }
    if (top > deadline_.of(*i)) {
      why = {{*i, deadline_.of(*i) - units + 1}};
      return false;
    }
    if (top < state.top) {
      state.second_top = state.top;
      state.top = top;
      state.lowest = *i;
    } else {
      state.second_top = std::min(state.second_top, top);
    }
  }
  if (open_[at(section)] != 0) state.floor = least(items[0]);
  state_[at(section)] = state;
  return true;
}

// Sets `why`: wherever these items stand from the lowest one's least offset on, one of them ends too late.
// Leaves out unneeded items, wide ones first: fewer decisions have raised the narrow items.
void Skyline::explain(const int* begin, const int* end, bool late, Nogood& why) const {
  const std::int64_t deadline = deadline_.units + (late ? 1 : 0);
  std::int64_t sum = 0;
  for (const int* i = begin; i != end; ++i) sum += instance_.items[at(*i)].units;
  std::int64_t excess = least(*begin) + sum - deadline - 1;
  std::vector<int> needed(begin, end);
  std::stable_sort(needed.begin(), needed.end(), [this](int a, int b) {
    return instance_.items[at(a)].width() > instance_.items[at(b)].width();
  });
  std::erase_if(needed, [&](int i) {
    const std::int64_t units = instance_.items[at(i)].units;
    if (units > excess) return false;
    excess -= units;
    sum -= units;
    return true;
  });
  why.clear();
  for (const int i : needed) why.push_back({i, deadline + 1 - sum});
}

}  // namespace stowage::placement
