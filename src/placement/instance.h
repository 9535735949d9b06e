// Input of the search: items that are live together, directly or by way of other items, on a short time axis
// and in large units.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "stowage/placement.h"

namespace stowage::placement {

// An item with its sections. A section is a time whose live items are a largest set: any set of items that
// are live together is part of the set of one section. Sections are numbered from left to right.
struct Item {
  int first = 0;  // sections [first, last)
  int last = 0;
  std::int64_t units = 0;
  Bytes slack = 0;  // free bytes in the item's last unit; less than the alignment

  int width() const { return last - first; }
  bool meets(const Item& other) const { return first < other.last && other.first < last; }
};

// Items must end at `units`. Items marked late may end one unit further, since they leave enough of that
// unit free.
struct Deadline {
  std::int64_t units = 0;
  std::vector<bool> late;  // by item

  std::int64_t of(int item) const { return units + (late[static_cast<std::size_t>(item)] ? 1 : 0); }
};

struct Instance {
  std::vector<Item> items;
  std::vector<std::uint32_t> indices;  // index of each item in the input
  int sections = 0;
  Bytes unit = 1;  // bytes; a multiple of the alignment that divides every aligned size

  // Sum of the items' sections, to which a search's memory is proportional.
  std::uint64_t cells() const;
  Deadline deadline(Bytes capacity) const;
  // Returns the lowest peak above `capacity` that a placement in units can have.
  Bytes next_peak(Bytes capacity) const;
};

// Splits `items` into parts that no item connects, from left to right. Requires sound items, see `place`.
std::vector<Instance> split(std::span<const PlacementItem> items, Bytes alignment);

}  // namespace stowage::placement
