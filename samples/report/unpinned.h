// Tells the user which of the plan's page-locked memory the host could not page-lock, and what that costs.
#pragma once

#include <span>
#include <string>

#include "stowage/machine.h"
#include "stowage/plan.h"

namespace stowage::samples {

// Of buckets that are ordinary memory.
struct Unpinned {
  Bytes bytes = 0;
  Bytes in_bytes = 0, out_bytes = 0;  // that transfers move of them in each step
};
Unpinned unpinned_of(const Plan& plan, std::span<const BucketId> buckets);

// Lines that say how much it is, what it costs and how to avoid it; empty where all is page-locked.
std::string unpinned_note(const Plan& plan, const Machine& machine, std::span<const BucketId> buckets);

}  // namespace stowage::samples
