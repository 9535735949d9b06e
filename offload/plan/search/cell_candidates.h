// Candidates for the plans of one cell (cells.h): choices whose schedules fit into it by their live bytes.
#pragma once

#include <limits>
#include <map>
#include <memory>
#include <vector>

#include "offload/plan/decisions/residency_program.h"

namespace stowage {

// A variant: one order of micro-batches, one bucket size, and one kind of replays (within units, within
// joined units, or of whole blocks).
struct CellVariant {
  const Problem* problem = nullptr;
  ResidencyProgram program;
};

struct CellSize {
  Bytes device = 0, host = 0;
  bool least_host = false;  // the fewest host bytes are wanted, and `host` does not count
  bool smallest = false;    // the cell is one with the least device memory
  // Choices to which the program gives a longer time are left out.
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
    bool fits = false;     // the choices fit into the device memory; if not, nothing more is known
    bool is_kept = false;  // some cell has these choices as a candidate
    double seconds = 0;    // the same estimate as in CellCandidate
    Bytes host_bytes = 0;
    Bytes serial_bytes = 0;
  };
  // Returns null if the choices have not been tried yet.
  Trial* find(const Problem& problem, const Choices& choices);
  void add(const Problem& problem, const Choices& choices, const Trial& trial);

 private:
  std::map<const Problem*, std::map<Choices, Trial>> trials_;
};

// A record of the search for a cell's candidates.
struct CellSearch {
  // Choices that were scheduled anew or found in TriedChoices, without those that a cell of the same device
  // memory already has as candidates. A measure of the search's work.
  std::size_t sketches = 0;
  // The most host bytes of the programs' mixtures and of candidates that fit. Cells with any host memory
  // between these bytes and CellSize::host have the same candidates.
  Bytes most_host = 0;
  bool is_limited = false;  // the limit PlannerSettings::most_cell_work ended the search
};

// Returns the candidates, the best estimate first; with `least_host` the fewest host bytes first. `tried`:
// the choices tried for cells with the same device memory. Choices in it are not scheduled again, and all
// others are added to it. Rounding a mixture may take more host bytes than `size.host`, or fewer. Candidates
// that take more are returned, too, for budgets that have so much.
std::vector<CellCandidate> find_candidates(const std::vector<std::unique_ptr<CellVariant>>& variants,
                                           const CellSize& size, const PlannerSettings& settings,
                                           TriedChoices& tried, CellSearch& search);

}  // namespace stowage
