// Planner and oracle on one instance, side by side.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "stowage/bytes.h"

namespace stowage::oracle {

struct Verdict {
  std::uint64_t seed = 0;
  int rung = 0;  // which of the seed's budgets
  std::string shape;
  Bytes budget = 0, minimum = 0, need = 0;
  double planner = 0, bound = 0;            // seconds; infinite: infeasible
  double lower = 0, oracle = 0;             // seconds: no plan is faster; of the oracle's plan
  double same_choices = 0;                  // of the fastest plan with the planner's own choices, at least
  int planner_early = 0, oracle_early = 0;  // updates before the gate in their plans
  bool exact = false;                       // the oracle's plan takes `lower`
  std::vector<std::string> faults;          // of bound, oracle or planner: never allowed
  std::string planner_choice, oracle_choice;
  bool lost() const;    // infeasible where the oracle has a plan
  bool judged() const;  // both have a plan
  bool open() const;    // the planner has one; the oracle found none, and no proof that there is none
  double ratio() const { return planner / oracle; }
};

// Budgets of one instance: two below the planner's minimum, the minimum, some between, the need.
inline constexpr int rungs = 8;
// `explain`: also what the planner's own choices could have had.
Verdict judge(std::uint64_t seed, int rung, bool explain);
// Judges plans of two micro-batches, both forwards ahead, of an instance of `units` units.
Verdict judge_two_parts(std::uint64_t seed, int units, int rung);

}  // namespace stowage::oracle
