// What the search works on: items that are live together, directly or by way of others, on a short time
// axis and in large units.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "stowage/placement.h"

namespace stowage::placement {

// A section is a time at which no more items are live than a moment before or after: each set of items
// that are live together is part of the set of one section. They are numbered from left to right.
struct Item {
  int first = 0;  // sections [first, last)
  int last = 0;
  std::int64_t units = 0;
  Bytes slack = 0;  // bytes of the last unit that it leaves free; less than the alignment

  int width() const { return last - first; }
  bool meets(const Item& other) const { return first < other.last && other.first < last; }
};

// Items may end at `units`, those marked late one unit further: they leave enough of it free.
struct Deadline {
  std::int64_t units = 0;
  std::vector<bool> late;  // by item

  std::int64_t of(int item) const { return units + (late[static_cast<std::size_t>(item)] ? 1 : 0); }
};

struct Instance {
  std::vector<Item> items;
  std::vector<std::uint32_t> indices;  // of each item in the input
  int sections = 0;
  Bytes unit = 1;  // bytes; a multiple of the alignment that divides every aligned size

  // Sections of all items together: what a search needs memory for.
  std::uint64_t cells() const;
  Deadline deadline(Bytes capacity) const;
  // The lowest peak above `capacity` that a placement in units can have.
  Bytes next_peak(Bytes capacity) const;
};

// The parts of `items` that no item connects, from left to right. `items` are sound, see `place`.
std::vector<Instance> split(std::span<const PlacementItem> items, Bytes alignment);

}  // namespace stowage::placement
