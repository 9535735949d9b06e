// Lifetimes to replay, made from a seed: long-lived and growing blocks among short ones.
#pragma once

#include <cstdint>
#include <vector>

#include "stowage/placement.h"

namespace stowage {

inline constexpr std::uint64_t generated_traces = 50;

// The same for a seed everywhere. Some hundred to some thousand buffers, about a gibibyte live at most:
// long-lived ones all along, several that grow (a new, larger block is made before the old one is freed, as a
// list or a cache of keys and values does), and short ones of widely different sizes in nested and
// overlapping lifetimes.
std::vector<PlacementItem> generated_lifetimes(std::uint64_t seed);

}  // namespace stowage
