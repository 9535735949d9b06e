// The step's inputs: checked, then copied to where their transfers read them.
#pragma once

#include <span>
#include <vector>

#include "offload/engine/binding.h"
#include "offload/engine/host_memory.h"
#include "stowage/engine.h"

namespace stowage {

class Inputs {
 public:
  // The graph must outlive it.
  Inputs(const Graph& graph, std::span<const TensorPlace> places, const HostMemory& host);

  // Throws InvalidInput, before anything is copied, when an input is missing, given twice, unknown or
  // of another size. Allocates nothing unless it throws.
  void load(std::span<const InputData> inputs);

 private:
  struct Input {
    TensorId tensor = no_id;
    std::byte* data = nullptr;  // null: no op reads it, the plan gives it no place
    const InputData* given = nullptr;
  };
  void match(const InputData& given);

  const Graph& graph_;
  std::vector<Input> inputs_;
};

}  // namespace stowage
