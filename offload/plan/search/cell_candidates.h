// Candidates for the plans of one cell (cells.h): choices whose schedules fit into it by their live bytes.
#pragma once

#include <limits>
#include <map>
#include <memory>
#include <vector>

#include "offload/plan/decisions/residency_program.h"

namespace stowage {

// One order of micro-batches, bucket size and kind of replays: within units, joined units or whole blocks.
struct CellVariant {
  const Problem* problem = nullptr;
  ResidencyProgram program;
};

struct CellSize {
  Bytes device = 0, host = 0;
  bool least_host = false;  // `host` does not count: host bytes are to be as few as possible
  bool smallest = false;    // no cell has less device memory
  // Choices to which the program gives a longer time are not looked for.
  double most_seconds = std::numeric_limits<double>::infinity();
};

struct CellCandidate {
  const Problem* problem = nullptr;
  Choices choices;
  double seconds = 0;  // estimated_seconds (candidate.h) under the first cap
  Bytes host_bytes = 0;
  Bytes serial_bytes = 0;  // Sketcher::serial_bytes: no cap gives fewer live bytes
};

// Remembers the schedules of choices in cells of one device memory: cells with other host memory ask for the
// same ones again and again.
class TriedChoices {
 public:
  struct Trial {
    bool fits = false;     // into the device memory; else nothing more is known
    bool is_kept = false;  // a candidate of a cell
    double seconds = 0;    // as CellCandidate has them
    Bytes host_bytes = 0;
    Bytes serial_bytes = 0;
  };
  // Null if they were not tried yet.
  Trial* find(const Problem& problem, const Choices& choices);
  void add(const Problem& problem, const Choices& choices, const Trial& trial);

 private:
  std::map<const Problem*, std::map<Choices, Trial>> trials_;
};

// How a cell's candidates were found.
struct CellSearch {
  std::size_t sketches = 0;  // schedules, made or known; those of choices that a cell has kept do not count
  // The most host bytes of the programs' mixtures and of candidates that fit: any host memory between that
  // and CellSize::host has the same candidates.
  Bytes most_host = 0;
  bool is_limited = false;  // by PlannerSettings::most_cell_work
};

// The candidates, the best estimate first; with `least_host` the fewest host bytes first. `tried`: of cells
// with the same device memory; choices that it knows are not scheduled again, and the others are added.
// Rounding a mixture may take more host bytes than `size.host`, or fewer: candidates that do are returned,
// too, for budgets that have so much.
std::vector<CellCandidate> find_candidates(const std::vector<std::unique_ptr<CellVariant>>& variants,
                                           const CellSize& size, const PlannerSettings& settings,
                                           TriedChoices& tried, CellSearch& search);

}  // namespace stowage
