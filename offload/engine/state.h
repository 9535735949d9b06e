// The values that live across steps: parameters and optimizer state, wherever the plan keeps them.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "allocator/arena.h"
#include "offload/engine/binding.h"
#include "offload/engine/host_memory.h"
#include "offload/engine/staging.h"

namespace stowage {

class State {
 public:
  // Everything must outlive it. Throws InvalidInput for a tensor that has no place to live.
  State(Staging& staging, const Graph& graph, const Plan& plan, std::span<const TensorPlace> places,
        const HostMemory& host, const Arena& arena);

  // Parameters from their initializers, or zero without `parameters`; optimizer state zero. Once, while the
  // host's memory is as it came: zero.
  void initialise(std::uint64_t seed, bool parameters);

  // Nothing may be in flight. InvalidInput for a tensor that does not live across steps, or for a
  // value of another size; DeviceError.
  std::vector<std::byte> read(TensorId tensor);
  void write(TensorId tensor, std::span<const std::byte> value);
  // A part of the value, from byte `offset` on.
  void read(TensorId tensor, Bytes offset, std::span<std::byte> into);
  void write(TensorId tensor, Bytes offset, std::span<const std::byte> value);
  // As Engine::fill.
  void fill(TensorId tensor, const Staging::FillPiece& piece);

 private:
  // Where a tensor's value is. Both sides for a parameter that stays on the device and is updated on
  // the host.
  struct Home {
    std::byte* host = nullptr;
    std::byte* device = nullptr;
    bool device_leads = false;  // updated on the device
  };
  Home home(TensorId tensor) const;
  void require_inside(TensorId tensor, Bytes offset, Bytes bytes) const;
  bool updated_on_device(TensorId tensor) const;

  Staging& staging_;
  const Graph& graph_;
  const Plan& plan_;
  std::vector<Home> homes_;  // by tensor
};

}  // namespace stowage
