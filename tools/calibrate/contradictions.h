// Measurements that cannot all be right, as on a machine that did other work meanwhile.
#pragma once

#include <string>
#include <vector>

#include "stowage/machine_file.h"

namespace stowage {

// One sentence for each curve in which a larger copy, a larger product or more threads had less than half the
// rate of a smaller one or fewer: the worst of each. Empty: none.
std::vector<std::string> contradictions(const MachineFile& file);

}  // namespace stowage
