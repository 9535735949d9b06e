// Items to place, and slow judges of placements.
#pragma once

#include <filesystem>
#include <optional>
#include <random>

#include "src/placement/instance.h"

namespace stowage::placement::test {

using Items = std::vector<PlacementItem>;

// Up to 20 positions long, within 80.
Items random_items(std::mt19937_64& random, int count, Bytes max_bytes);

// `length` by `bytes` cut into `count` pieces, one of full length: they fit into `bytes` exactly, with
// nothing left free.
Items cut_rectangle(std::mt19937_64& random, int count, std::int64_t length, Bytes bytes);

// Whether two items share bytes while both are live, pair by pair.
bool overlap(const Items& items, const std::vector<Bytes>& offsets);

// What every placement promises.
void expect_sound(const Items& items, Bytes alignment, const PlacementResult& result);

// Smallest peak over every order of placing each item at the lowest offset that is free: some order of it is
// optimal. For up to 7 items.
Bytes exhaustive_peak(const Items& items, Bytes alignment = 1);

// Whether some order of stacking each item on what it meets fits. For up to 12 items.
bool exhaustive_fit(const Items& items, Bytes capacity);

// Small inputs whose best placement needs one byte more than is ever live at once: few are so.
const std::vector<Items>& inputs_above_their_bound();

// The largest live sum, position by position within 200.
Bytes peak_by_positions(const Items& items);

// The items of the only part.
Instance instance_of(const Items& items, Bytes alignment = 1);

// A public instance: nothing where the folder is absent.
std::optional<Items> public_instance(const std::string& file);

}  // namespace stowage::placement::test
