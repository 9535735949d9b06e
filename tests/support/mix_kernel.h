// The kernel "mix": every element of every output depends on all inputs, its position, the op's
// attribute "key" and the step, in a fixed order of operations.
#pragma once

#include "stowage/launch_table.h"

namespace stowage::testing {

// Operands of any type. Results are finite and at most 1 in magnitude for finite inputs; a NaN spreads.
// Inputs with as many elements as an output count element by element, so that write 0 may share the
// bytes of such a read. Workspaces are filled first and read back.
void mix_kernel(const LaunchArguments& arguments);

}  // namespace stowage::testing
