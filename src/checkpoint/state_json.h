// state.json: a CheckpointState as one line of JSON whose last member is a checksum over all before it.
#pragma once

#include <string>
#include <string_view>

#include "stowage/checkpoint.h"

namespace stowage {

// Of the file: a hundred thousand tensors and more.
inline constexpr Bytes largest_state_json = Bytes{1} << 26;

std::string state_to_json(const CheckpointState& state);

// The text is hostile. `what`: of it, for messages, e.g. its path. Throws InvalidInput naming `what` and the
// field. Tensors of what it returns lie one behind the other, as checkpoint_bytes counts them.
CheckpointState state_from_json(std::string_view text, const std::string& what);

// `body`, an object's text up to its last member, with the checksum and the end.
std::string sealed(std::string body);

}  // namespace stowage
