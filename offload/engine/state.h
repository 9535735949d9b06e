// The values that callers read and write: parameters and optimizer state across steps, and a step's inputs.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "allocator/arena.h"
#include "offload/engine/binding.h"
#include "offload/engine/host_memory.h"
#include "offload/engine/staging.h"
#include "stowage/engine.h"

namespace stowage {

// Parameters and optimizer state, wherever the plan keeps them.
class State {
 public:
  // All arguments must outlive the object. Throws InvalidInput for a tensor that has no place to live.
  State(Staging& staging, const Graph& graph, const Plan& plan, std::span<const TensorPlace> places,
        const HostMemory& host, const Arena& arena);

  // Fills parameters from their initializers if `parameters`, else with zeros, and optimizer state with
  // zeros. Requires that the host's memory is still zero.
  void initialise(std::uint64_t seed, bool parameters);

  // Require that nothing is in flight. Throw InvalidInput for a tensor that does not live across steps or for
  // a value of another size, and DeviceError.
  std::vector<std::byte> read(TensorId tensor);
  void write(TensorId tensor, std::span<const std::byte> value);
  // Read or write a part of the value, from byte `offset` on.
  void read(TensorId tensor, Bytes offset, std::span<std::byte> into);
  void write(TensorId tensor, Bytes offset, std::span<const std::byte> value);
  // As Engine::fill.
  void fill(TensorId tensor, const Staging::FillPiece& piece);

  // Returns the place of a parameter for another engine: on the device if it stays there, else on the host.
  LentParameter lent(TensorId parameter) const;
  // Brings the parts of lent parameters that the host updates to the device, for those that stay there.
  // Requires that nothing is in flight.
  void refresh_lent();

 private:
  // A place of bytes [begin, end) of a tensor's value: of the whole value or of one slice. A parameter that
  // stays on the device and is updated on the host has a place on both.
  struct Home {
    Bytes begin = 0;
    Bytes end = 0;
    std::byte* host = nullptr;
    std::byte* device = nullptr;
    bool device_leads = false;  // the value is updated on the device
  };
  Home home_of(TensorId piece, const TensorPlace& place, const HostMemory& host, const Arena& arena) const;
  const std::vector<Home>& homes(TensorId tensor) const;
  // Calls work(home, from, to) for the bytes of each home that are in [offset, offset + bytes) of the tensor.
  template <class Work>
  void for_each_home(TensorId tensor, Bytes offset, Bytes bytes, Work work) const;
  void require_inside(TensorId tensor, Bytes offset, Bytes bytes) const;
  bool updated_on_device(TensorId tensor) const;

  Staging& staging_;
  const Graph& graph_;
  const Plan& plan_;
  // Places by tensor, in order; empty unless the tensor lives across steps.
  std::vector<std::vector<Home>> homes_;
};

// Checks a step's inputs and copies them to where their transfers read them.
class Inputs {
 public:
  // The graph must outlive it.
  Inputs(const Graph& graph, std::span<const TensorPlace> places, const HostMemory& host);

  // Throws InvalidInput, before anything is copied, if an input is missing, given twice, unknown or of
  // another size. Allocates nothing unless it throws.
  void load(std::span<const InputData> inputs);

 private:
  struct Input {
    TensorId tensor = no_id;
    std::byte* data = nullptr;  // null: no op reads the input, and the plan gives it no place
    const InputData* given = nullptr;
  };
  void match(const InputData& given);

  const Graph& graph_;
  std::vector<Input> inputs_;
};

}  // namespace stowage
