// The machine files that come with Stowage, as they are in the folder `machines` when this is built.
#pragma once

#include <span>
#include <string_view>

namespace stowage {

struct ShippedMachine {
  std::string_view name;
  std::string_view text;  // JSON
};
// Sorted by name.
std::span<const ShippedMachine> shipped_machines();

}  // namespace stowage
