// Finds where the first NaN or infinity of a step comes from: looks at each result while the step's ops run
// once more.
#pragma once

#include <exception>
#include <optional>

#include "offload/engine/result_reader.h"
#include "offload/engine/step_runner.h"
#include "src/graph/finite.h"

namespace stowage {

// The cause of a loss or norm that is not finite. The engine makes a NonFinite of it.
struct NonFiniteValue : std::exception {
  double loss = 0;
  double grad_norm = 0;
  bool was_searched = true;           // false: the members below are not set
  InstructionId instruction = no_id;  // the first instruction with a result that is not finite, or no_id
  TensorId tensor = no_id;            // the tensor with the value: the op's result or an operand it read
  bool was_read = false;              // the op read the value from `tensor`, which no op had made
  NonFiniteElement element;
  const char* what() const noexcept override { return "a value is not finite"; }
};

// The cause that nobody looks for.
inline NonFiniteValue unsearched() {
  NonFiniteValue value;
  value.was_searched = false;
  return value;
}

class NonFiniteSearch : public Follower {
 public:
  // All arguments must outlive the search. Takes staging_memory, at most 4 MiB. Throws OutOfMemory.
  NonFiniteSearch(Device& device, const Graph& graph, const Plan& plan, const Lanes& lanes,
                  std::span<const BoundInstruction> bound, bool pageable_fallback);

  // Waits for an op's work and looks at what it wrote. REQUIRES: all ops before it wrote finite values.
  // Throws NonFiniteValue without the report's values.
  void follow(InstructionId id) override;

 private:
  std::optional<NonFiniteElement> look(const Instruction& instruction, const Operand& value);
  void look_at_share(InstructionId id);
  [[noreturn]] void blame(InstructionId id, std::size_t write, const NonFiniteElement& element);

  Device& device_;
  const Graph& graph_;
  const Plan& plan_;
  const Lanes& lanes_;
  const std::span<const BoundInstruction> bound_;
  ResultReader reader_;
};

}  // namespace stowage
