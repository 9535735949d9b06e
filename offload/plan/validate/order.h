// The order of events over three consecutive steps of the plan.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "offload/plan/validate/report.h"

namespace stowage::validation {

inline constexpr std::uint32_t unrolled_steps = 3;

// Reports waits for instructions that are enqueued later in the same step. Returns whether there are none.
bool check_enqueued(const Plan& plan, Report& report);

// The nodes are, step by step, the step's beginning, in which the caller's inputs reach host memory, and its
// instructions in the order of the list.
class Order {
 public:
  // Reports waits that point forwards, and a deadlock if waits form a cycle. sound() is then false, and
  // before() must not be called.
  Order(const Plan& plan, Report& report);

  bool sound() const { return sound_; }
  std::uint32_t beginning(std::uint32_t step) const { return step * stride_; }
  std::uint32_t node(std::uint32_t step, InstructionId id) const { return step * stride_ + 1 + id; }

  // Returns whether node `a` has ended before node `b` starts, whatever the timing.
  bool before(std::uint32_t a, std::uint32_t b) const {
    return ended_before_[b].at(chain_[a].of) >= chain_[a].number;
  }

 private:
  // Chains of nodes, each of which comes after the one before it: each lane over all steps, and
  // each step's beginning.
  static constexpr std::size_t chains = lane_roles + unrolled_steps;
  struct Link {
    std::uint32_t of = 0;      // number of the chain
    std::uint32_t number = 0;  // the node's place in the chain, from 1
  };
  using Counts = std::array<std::uint32_t, chains>;

  std::uint32_t nodes() const { return stride_ * unrolled_steps; }
  void add_edges(const Plan& plan);
  bool acyclic() const;
  void count();

  std::uint32_t stride_;
  bool sound_ = true;
  std::vector<std::vector<std::uint32_t>> predecessors_;  // predecessors of each node
  std::vector<Link> chain_;                               // chain of each node
  std::vector<Counts> ended_before_;  // by node: how many nodes of each chain have ended before it
};

}  // namespace stowage::validation
