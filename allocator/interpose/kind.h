// Kind: the call by which a program got its memory.
#pragma once

#include <string_view>

namespace stowage::interpose {

enum class Kind { device, pitched, managed, async, pool, host_pool, physical, host_physical, graph, unknown };
std::string_view name_of(Kind kind);
// Whether memory of this kind is a part of what the card holds.
bool on_the_card(Kind kind);

}  // namespace stowage::interpose
