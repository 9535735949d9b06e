// Kind: the call by which a program got its memory.
#pragma once

#include <string_view>

namespace stowage::interpose {

enum class Kind { device, pitched, managed, async, pool, host_pool, physical, host_physical, graph, unknown };
std::string_view name_of(Kind kind);
// Returns true if memory of this kind occupies the card.
bool on_the_card(Kind kind);

}  // namespace stowage::interpose
