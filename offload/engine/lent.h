// Parameters that one engine lends to another, which evaluates the model between its steps.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "allocator/arena.h"
#include "stowage/device.h"
#include "stowage/graph.h"
#include "stowage/plan.h"

namespace stowage {

// A contiguous part of a transfer.
struct Moved {
  std::byte* device = nullptr;
  std::byte* host = nullptr;
  Bytes bytes = 0;
};

// The place of a parameter in its engine: whole on the device, or else whole on the host.
struct LentParameter {
  std::byte* device = nullptr;
  std::byte* host = nullptr;
  Bytes bytes = 0;
};

// Returns, by tensor of `graph`, the parameter of the same name in the lender's graph; no_id for other
// tensors. Throws InvalidInput for a parameter that the lender has not, or in another type or shape.
std::vector<TensorId> parameters_of(const Graph& lender, const Graph& graph);

// Returns the transfers that bring a bucket of lent parameters to `device`, the address of its first byte.
// Parameters that are on the device stay where they are. `lent`: by tensor.
std::vector<Moved> lent_parts(const Bucket& bucket, std::byte* device, std::span<const LentParameter> lent);

// Brings the lent parameters that the plan keeps on the device to their places in `arena`, by the lane `h2d`,
// and waits. Throws DeviceError; copies may then be in flight.
void load_residents(Device& device, LaneId h2d, const Plan& plan, const Arena& arena,
                    std::span<const LentParameter> lent);

}  // namespace stowage
