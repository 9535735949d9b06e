// What happens before what, over three steps of the plan one after another.
#pragma once

#include <cstdint>
#include <vector>

#include "offload/plan/validate/report.h"

namespace stowage::validation {

inline constexpr std::uint32_t unrolled_steps = 3;

// Nodes: each step's beginning, in which the caller's inputs reach host memory, then its
// instructions in the order of the list.
class Order {
 public:
  // Reports waits that point forwards, and a deadlock where they make a cycle. `sound()` is then
  // false and nothing may be asked.
  Order(const Plan& plan, Report& report);

  bool sound() const { return sound_; }
  std::uint32_t beginning(std::uint32_t step) const { return step * stride_; }
  std::uint32_t node(std::uint32_t step, InstructionId id) const { return step * stride_ + 1 + id; }

  // Whether node `a` has ended before node `b` starts, whatever the timing.
  bool before(std::uint32_t a, std::uint32_t b) const { return (row(b)[a / 64] >> (a % 64) & 1) != 0; }

 private:
  std::uint32_t nodes() const { return stride_ * unrolled_steps; }
  void add_edges(const Plan& plan);
  bool acyclic() const;
  void close();
  std::uint64_t* row(std::uint32_t node) { return bits_.data() + std::size_t{node} * words_; }
  const std::uint64_t* row(std::uint32_t node) const { return bits_.data() + std::size_t{node} * words_; }

  std::uint32_t stride_;
  std::size_t words_;
  bool sound_ = true;
  std::vector<std::vector<std::uint32_t>> predecessors_;  // by node
  std::vector<std::uint64_t> bits_;                       // row b, bit a: a before b
};

}  // namespace stowage::validation
