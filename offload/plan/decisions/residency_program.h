// Residency pass: decides where each parameter bucket and each activation is under given amounts of memory.
//
// A linear program (share_program.h) decides which fraction of each class of alike decisions
// (decision_classes.h) takes which choice. It minimises the time of the busiest lane in the step's front plus
// that of the busiest lane in its back. The program's answer is then rounded decision by decision, in the
// order of time.
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
    // Seconds of the step if its lanes overlap perfectly, plus the prices of its choices. Meaningless in a
    // mixture that least_host() returns.
    double seconds = 0;
    bool fits = false;  // the mixture fits into each row of device memory, and into host memory
    Bytes host_bytes = 0;
    std::vector<std::vector<double>> shares;  // fractions of options, by class and option
    std::vector<double> room;                 // bytes of room in each memory row
  };
  // Returns the mixture of least time within `device` bytes in each row of device memory and `host` bytes of
  // host memory. `given`: one class whose fractions are fixed, as divided() and sliced() return it.
  Mixture solve(Bytes device, Bytes host, const std::optional<GivenShares>& given = {}) const;
  // An item or bucket that is alone in its class takes one choice, whatever fractions the mixture gives it.
  // Finds the item or bucket whose rounding changes most bytes, and returns each of its choices that has a
  // fraction, to be solved for as `given`. Returns nothing if rounding changes no more than
  // PlannerSettings::undivided of `device`.
  std::vector<GivenShares> divided(const Mixture& mixture, Bytes device) const;
  // Returns, for each parameter that is cut, each of PlannerSettings::slice_shares as the fraction of its
  // slices on the device, to be solved for as `given`. The program knows too little of the order within a
  // step to say which fraction is best.
  std::vector<GivenShares> sliced() const;
  // Returns the mixture with the fewest host bytes that `device` bytes allow.
  Mixture least_host(Bytes device) const;
  enum class Rounding : std::uint8_t { by_kind, balanced };
  // Rounds the mixture to one choice for each item and bucket, in the order of first use.
  // - by_kind: each takes the choice that is most due: its fractions in the mixture, plus the remainders of
  //   earlier decisions of its kind (DecisionClasses::Class).
  // - balanced: a decision that is alone of its kind instead takes, of the choices that its mixture gives a
  //   fraction, the one that keeps the lanes and memory rows that limit the step closest to what the mixture
  //   takes of them.
  Choices round(const Mixture& mixture, Rounding rounding = Rounding::by_kind) const;
  // Returns the fraction of decisions that are alone of their kind.
  double alone_share() const;

  // Returns Mixture::seconds of whole choices, such as those that round() returns. All slices of a parameter
  // count as on the host.
  double seconds(const Choices& choices) const;

  // Returns the host bytes of a step in which every decision takes the choice with most host bytes. No plan
  // needs more.
  Bytes most_host_bytes() const { return classes_.most_host_bytes(); }

 private:
  Mixture solve_for(const std::vector<double>& room, double seconds_weight, double host_weight,
                    const std::optional<GivenShares>& given) const;

  std::map<std::size_t, std::size_t> members_by_kind() const;
  void make_table();  // makes the table of the present classes
  // Returns the cost by row: the rows of ShareCost::front, then those of back, then those of memory.
  std::vector<double> rows_of(const ShareCost& cost) const;
  // Returns, by row, 1 / its limit if the mixture fills the row, else 0. A lane's limit is the busiest lane.
  std::vector<double> weights(const Mixture& mixture) const;
  bool take_slices(const DecisionClasses::Class& of, const DecisionClasses::Member& member,
                   std::vector<double>& due, Choices& choices) const;

  const Problem& problem_;
  const PlannerSettings& settings_;
  DecisionClasses classes_;
  std::optional<ShareTable> table_;
};

}  // namespace stowage
