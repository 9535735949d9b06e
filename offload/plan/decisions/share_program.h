// A linear program that gives each decision a mixture of its options: a fraction of each. The program
// minimises the work of the busiest lane of each phase and keeps everything within memory.
//
//   minimise  front + back + sum of prices
//   where     on each lane, and at each cut, the work of a phase is at most `front` or `back` seconds,
//             each row of memory holds at most its room,
//             and the fractions of a decision's options come to one.
//
// The program is solved by decomposition (Dantzig and Wolfe, "Decomposition Principle for Linear Programs",
// 1960). A small master program mixes the answers so far and finds the prices of a second on each lane and of
// a byte in each memory row. At these prices each decision by itself takes its cheapest option; together
// these options are the next answer for the master. The next answer also bounds the program from below. Any
// prices give a valid bound, so rounding errors in them do no harm.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "stowage/lanes.h"

namespace stowage {

// Lanes are numbered by their row of lane_table.
inline constexpr std::size_t share_compute = index_of(LaneRole::compute), share_h2d = index_of(LaneRole::h2d),
                             share_d2h = index_of(LaneRole::d2h), share_host = index_of(LaneRole::host),
                             share_peer = index_of(LaneRole::peer), share_lanes = lane_roles;
// The most cuts of a phase (step_cuts.h), and the most cuts of the back for early updates.
inline constexpr std::size_t share_cuts = 5, update_cuts = 3;
inline constexpr std::size_t share_rows = share_lanes + share_cuts + update_cuts;
// Seconds by lane, then by cut. In the front the last update_cuts entries are 0.
using ShareTimes = std::array<double, share_rows>;
inline constexpr std::size_t most_memory_rows = 20;
using ShareMemory = std::array<double, most_memory_rows>;

// The cost of one option: time on each lane in `front` and in `back`, the two phases of a step
// (docs/planning.md), and bytes in each memory row. The solver needs numbers of about one. The builder of a
// program provides them by the units of its costs, or by ShareTable::Question, which scales them.
struct ShareCost {
  ShareTimes front{}, back{};
  ShareMemory memory{};
  double price = 0;  // a price in units of time, added to the seconds
  void add(const ShareCost& other, double times);
};

// A number of alike decisions (`count`). Each decision takes any mixture of its options, of which there are 1
// to 255.
struct ShareDecision {
  std::vector<ShareCost> options;
  double count = 1;
};

// Joins decisions whose options cost the same time and memory, and adds up their counts. Does
// not compare prices.
std::vector<ShareDecision> with_alike_as_one(std::vector<ShareDecision> decisions);

struct ShareProgram {
  ShareCost fixed;  // the cost of the step whatever is decided
  std::vector<ShareDecision> decisions;
  std::vector<double> room;  // room of each memory row; at most most_memory_rows
};

struct ShareAnswer {
  double bound = 0;   // no mixture that fits has a smaller value
  double value = 0;   // the value of the mixture, with a penalty if it does not fit
  bool fits = false;  // the mixture keeps to the room
  // The lane whose work makes up most of the value. A cut counts as the lane of its updates or offloads.
  LaneRole binding = LaneRole::compute;
  std::vector<double> memory;               // bytes of the mixture, by memory row
  std::vector<std::vector<double>> shares;  // fractions of options, by decision and option
};

// A decision whose fractions are given rather than sought.
struct GivenShares {
  std::size_t decision = 0;
  std::vector<double> shares;  // fraction of each option
};

// Decisions laid out once, to answer many questions about them.
class ShareTable {
 public:
  ShareTable(const ShareCost& fixed, const std::vector<ShareDecision>& decisions, std::size_t memory_rows);

  struct Question {
    std::vector<double> room;     // room of each memory row, in the question's unit
    double second = 1, byte = 1;  // values of one second and one byte of the costs in the question's units
    double last_row_price = 0;    // added to the value for each unit of bytes in the last memory row
    std::optional<GivenShares> given{};
    double tolerance = 1e-5;  // the solver stops when the bound is this close below the value, as a fraction
  };
  ShareAnswer solve(const Question& question) const;

 private:
  class Decomposition;
  static constexpr std::size_t phases = 2, lane_rows = phases * share_rows;

  ShareCost fixed_;
  std::size_t memory_rows_;
  std::vector<std::size_t> first_;  // by decision: its first option; last: the number of all options
  std::vector<double> count_;       // count of each decision
  std::vector<ShareCost> options_;
  // Costs of the options by row and option; the last row is the price.
  std::vector<std::vector<double>> by_row_;
};

// Answers one question in the program's own units, with this Question::tolerance.
ShareAnswer solve(const ShareProgram& program, double tolerance = 1e-5);

}  // namespace stowage
