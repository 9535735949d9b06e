// A linear program over shares of decisions: which mixture of its options each decision takes, so that the
// busiest lane of each phase has least to do and all fit into memory.
//
//   minimise  front + back + sum of prices
//   where     on each lane, and at each cut, the work of a phase is at most `front` or `back` seconds,
//             each row of memory holds at most its room,
//             and the shares of a decision's options come to one.
//
// Solved by decomposition (Dantzig and Wolfe, "Decomposition Principle for Linear Programs", 1960): what the
// rows are worth is priced by a master program of one column for each answer so far, and at those prices each
// decision takes its cheapest option by itself. Those answers bound the program from below, too: any prices
// give a valid bound, whatever rounding did to them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "stowage/lanes.h"

namespace stowage {

// By row of lane_table.
inline constexpr std::size_t share_compute = index_of(LaneRole::compute), share_h2d = index_of(LaneRole::h2d),
                             share_d2h = index_of(LaneRole::d2h), share_host = index_of(LaneRole::host),
                             share_lanes = lane_roles;
// A phase's length is also counted in two pieces, one behind the other, in so many ways (step_cuts.h).
inline constexpr std::size_t share_cuts = 5;
inline constexpr std::size_t share_rows = share_lanes + share_cuts;
// By lane, then by cut.
using ShareTimes = std::array<double, share_rows>;
inline constexpr std::size_t most_memory_rows = 20;
using ShareMemory = std::array<double, most_memory_rows>;

// Seconds and bytes, each as a part of a unit that the maker of the program chooses, so that numbers are
// about one. `front` and `back` are the two phases of a step (docs/design.md, section 3).
struct ShareCost {
  ShareTimes front{}, back{};
  ShareMemory memory{};
  double price = 0;  // on top of the time
  void add(const ShareCost& other, double times);
};

// `count` alike decisions, each for any mixture of its options, of which there are 1 to 255.
struct ShareDecision {
  std::vector<ShareCost> options;
  double count = 1;
};

// Those that cost the same are one, so many times.
std::vector<ShareDecision> with_alike_as_one(std::vector<ShareDecision> decisions);

struct ShareProgram {
  ShareCost fixed;
  std::vector<ShareDecision> decisions;
  std::vector<double> room;  // by row of memory, at most most_memory_rows
};

struct ShareAnswer {
  double bound = 0;                         // no mixture takes less
  double value = 0;                         // of the mixture
  bool fits = false;                        // the mixture keeps to the room
  LaneRole binding = LaneRole::compute;     // the lane whose work the bound counts most of
  std::vector<double> memory;               // of the mixture, by row
  std::vector<std::vector<double>> shares;  // by decision and option
};

// One decision whose shares are given.
struct ShareHeld {
  std::size_t decision = 0;
  std::vector<double> shares;  // by option
};

// The same decisions for many questions.
class ShareTable {
 public:
  ShareTable(const ShareCost& fixed, const std::vector<ShareDecision>& decisions, std::size_t memory_rows);

  struct Question {
    std::vector<double> room;     // by row of memory, in the question's unit
    double second = 1, byte = 1;  // what one second and one byte of the costs are in the question's units
    double last_row_price = 0;    // of each byte of the last row of memory
    std::optional<ShareHeld> held{};
    double tolerance = 1e-5;  // of the value: its bound may be so far below
  };
  ShareAnswer solve(const Question& question) const;

 private:
  class Decomposition;

  ShareCost fixed_;
  std::size_t memory_rows_;
  std::vector<std::size_t> first_;  // by decision: its first option; and how many there are in all
  std::vector<double> count_;       // by decision
  std::vector<ShareCost> options_;
  std::vector<std::vector<double>> by_row_;  // the options' costs once more; the last row is their price
};

// Until value and bound differ by no more than `tolerance` of the value.
ShareAnswer solve(const ShareProgram& program, double tolerance = 1e-5);

}  // namespace stowage
