// Candidates for the plans of one cell (cells.h): choices whose schedules fit into it by their live bytes.
#pragma once

#include <limits>
#include <memory>
#include <vector>

#include "offload/plan/residency_program.h"

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

// The candidates, the best estimate first; with `least_host` the fewest host bytes first. `known`: candidates
// of cells with the same device memory; they are not scheduled again. Sets `sketches` to the number of
// schedules that were made, less those that only try numbers of slices on the device, and `most_host` to the
// most host bytes of the programs' mixtures and of candidates that fit: any host memory between that and
// `size.host` has the same candidates. Rounding a mixture may take more host bytes than `size.host`, or
// fewer: candidates that do are returned, too, for budgets that have so much.
std::vector<CellCandidate> find_candidates(const std::vector<std::unique_ptr<CellVariant>>& variants,
                                           const CellSize& size, const PlannerSettings& settings,
                                           const std::vector<const CellCandidate*>& known,
                                           std::size_t& sketches, Bytes& most_host);

}  // namespace stowage
