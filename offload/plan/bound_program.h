// The linear program behind the lower bound: what each decision may cost on each lane and in memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "offload/plan/candidate.h"

namespace stowage {

enum BoundLane : std::size_t { bound_compute, bound_h2d, bound_d2h, bound_host, bound_lanes };
// When what is on the device must fit: beside the operands of the largest op of the unit in which forward
// turns into backward, beside those of the largest of all, and at the gate, where each resident parameter has
// its gradient beside it.
enum BoundMoment : std::size_t { bound_turn, bound_largest, bound_gate, bound_moments };

// Times in BoundProgram::seconds, memory in BoundProgram::bytes.
struct BoundCost {
  // From the gate to the turn: the updates of the step before and forward; from there to the next gate.
  std::array<double, bound_lanes> front{}, back{};
  std::array<double, bound_moments> memory{};
  void add(const BoundCost& other, double times);
};

// `count` alike decisions, each for any mixture of its options.
struct BoundDecision {
  std::vector<BoundCost> options;
  double count = 1;
};

struct BoundProgram {
  double seconds = 1;  // unit of time
  double bytes = 1;    // unit of memory
  BoundCost fixed;
  std::vector<BoundDecision> decisions;
  std::array<double, bound_moments> room{};  // for what the decisions have on the device
};

// How the link's directions count: each apart, or each with what the other one leaves of it where both move
// (machine.h). What an op cannot hide then counts for less, so either may be the sharper.
enum class BoundLinks : std::uint8_t { apart, shared };

BoundProgram make_bound_program(const Problem& problem, Bytes device_budget, BoundLinks links);

}  // namespace stowage
