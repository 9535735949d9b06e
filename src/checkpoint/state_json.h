// state.json: a CheckpointState as one line of JSON whose last member is a checksum over all before it.
#pragma once

#include <string>
#include <string_view>

#include "stowage/checkpoint.h"

namespace stowage {

// Limit of the file's size: enough for more than a hundred thousand tensors.
inline constexpr Bytes largest_state_json = Bytes{1} << 26;

std::string state_to_json(const CheckpointState& state);

// Treats the text as hostile. `what` names the text in messages, e.g. its path. Throws InvalidInput naming
// `what` and the field. The returned tensors lie one behind the other, as checkpoint_bytes counts them.
CheckpointState state_from_json(std::string_view text, const std::string& what);

// Returns `body`, an object's text up to its last member, with the checksum and the closing brace appended.
std::string sealed(std::string body);

}  // namespace stowage
