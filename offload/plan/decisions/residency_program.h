// Residency pass: what each parameter bucket and each activation does under given amounts of memory.
//
// A linear program (share_program.h) decides which share of each class of alike decisions
// (decision_classes.h) has which choice, so that the busiest lane of the step's front and that of its back
// together have least to do. The program's answer is then rounded decision by decision, in the order of time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "offload/plan/decisions/decision_classes.h"
#include "offload/plan/decisions/share_program.h"
#include "offload/plan/problem/problem.h"

namespace stowage {

inline Bytes share_of(Bytes bytes, double share) {
  return static_cast<Bytes>(share * static_cast<double>(bytes));
}

class ResidencyProgram {
 public:
  // Keeps references: problem and settings must outlive it.
  ResidencyProgram(const Problem& problem, const PlannerSettings& settings);

  struct Mixture {
    // How long the step takes if its lanes overlap perfectly, plus the prices of its choices. least_host()
    // returns no such time here.
    double seconds = 0;
    bool fits = false;  // in the room of device memory at each moment, and in that of host memory
    Bytes host_bytes = 0;
    std::vector<std::vector<double>> shares;  // by class and option
    std::vector<double> room;                 // bytes, by row of memory
  };
  // The mixture of least time with so many device bytes at each moment, and so many host bytes. `given`: one
  // class whose shares are given, as divided() and sliced() return them.
  Mixture solve(Bytes device, Bytes host, const std::optional<GivenShares>& given = {}) const;
  // An item or bucket that is alone in its class takes one choice, whatever shares the mixture gives it. Of
  // these, the one whose rounding changes most bytes, if more than PlannerSettings::undivided of `device`:
  // each of its choices that has a share, to be solved for as `given`. Else none.
  std::vector<GivenShares> divided(const Mixture& mixture, Bytes device) const;
  // For each parameter that is cut, each of PlannerSettings::slice_shares on the device, to be solved for as
  // `given`. The program knows too little of the order within a step to say which is best.
  std::vector<GivenShares> sliced() const;
  // The mixture with as few host bytes as these device bytes allow.
  Mixture least_host(Bytes device) const;
  enum class Rounding : std::uint8_t { by_kind, balanced };
  // Whole choices for each item and bucket. In the order of first use, each takes the choice of which most is
  // due: what its mixture says, plus the remainders of its kind (DecisionClasses::Class) so far. Balanced,
  // one that is alone of its kind takes, of the choices that its mixture gives a share, the one that keeps
  // the lanes and rows of memory that limit the step closest to what the mixture takes of them.
  Choices round(const Mixture& mixture, Rounding rounding = Rounding::by_kind) const;
  // The number of decisions that are alone of their kind, over that of all.
  double alone_share() const;

  // Returns Mixture::seconds of whole choices, such as those that round() returns. All slices of a parameter
  // count as on the host.
  double seconds(const Choices& choices) const;

  // Host bytes if every decision took the choice that needs most of them: no plan needs more.
  Bytes most_host_bytes() const { return classes_.most_host_bytes(); }

 private:
  Mixture solve_for(const std::vector<double>& room, double seconds_weight, double host_weight,
                    const std::optional<GivenShares>& given) const;

  std::map<std::size_t, std::size_t> members_by_kind() const;
  void make_table();  // of the present classes
  // By row: those of ShareCost::front, back and memory.
  std::vector<double> rows_of(const ShareCost& cost) const;
  // One over what the row may hold, where the mixture fills it; else 0.
  std::vector<double> weights(const Mixture& mixture) const;
  bool take_slices(const DecisionClasses::Class& of, const DecisionClasses::Member& member,
                   std::vector<double>& due, Choices& choices) const;

  const Problem& problem_;
  const PlannerSettings& settings_;
  DecisionClasses classes_;
  std::optional<ShareTable> table_;
};

}  // namespace stowage
