// Residency pass: what each parameter bucket and each activation does under given amounts of memory.
//
// A linear program (share_program.h) decides which share of each class of alike decisions
// (decision_classes.h) has which choice, so that the busiest lane of the step's front and that of its back
// have least to do. The program's answer is then rounded decision by decision, in the order of time.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "offload/plan/candidate.h"
#include "offload/plan/decision_classes.h"
#include "offload/plan/share_program.h"

namespace stowage {

inline Bytes share_of(Bytes bytes, double share) {
  return static_cast<Bytes>(share * static_cast<double>(bytes));
}

class ResidencyProgram {
 public:
  // Keeps a reference: `problem` must outlive it.
  ResidencyProgram(const Problem& problem, const PlannerSettings& settings);

  struct Mixture {
    double seconds = 0;  // of a step whose lanes overlap perfectly
    bool fits = false;   // in both rooms
    Bytes host_bytes = 0;
    std::vector<std::vector<double>> shares;  // by class and option
  };
  // With so many device bytes at each moment, and so many host bytes. `fixed`: an item that must have these
  // shares of its choices, a parameter in slices so many of them on the device.
  Mixture solve(Bytes device, Bytes host, const std::optional<ShareHeld>& fixed = {}) const;
  // An item can not be divided as a mixture divides it. The choices between which the mixture divides the one
  // that loses most bytes by that, if those are a large part of `device`; else none.
  std::vector<ShareHeld> divided(const Mixture& mixture, Bytes device) const;
  // Each parameter that is cut with some numbers of its slices on the device. The program sees too little of
  // the order of things to say how many are best.
  std::vector<ShareHeld> sliced() const;
  // With as few host bytes as these device bytes allow.
  Mixture least_host(Bytes device) const;
  Choices round(const Mixture& mixture) const;

  // Host bytes of the choice that has most of them: no plan needs more.
  Bytes most_host_bytes() const { return classes_.most_host_bytes(); }

 private:
  Mixture solve_for(const std::vector<double>& room, double seconds_weight, double host_weight,
                    const std::optional<ShareHeld>& fixed) const;

  void make_table();  // of the classes as they are
  bool take_slices(const DecisionClasses::Class& of, const DecisionClasses::Member& member,
                   std::vector<double>& due, Choices& choices) const;

  const Problem& problem_;
  const PlannerSettings& settings_;
  DecisionClasses classes_;
  std::optional<ShareTable> table_;
};

}  // namespace stowage
