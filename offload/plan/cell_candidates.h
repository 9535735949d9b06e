// Candidates for the plans of one cell (cells.h): choices whose schedules fit into it by their live
// bytes.
#pragma once

#include <limits>
#include <memory>
#include <vector>

#include "offload/plan/residency_program.h"

namespace stowage {

// One order of micro-batches, bucket size and kind of replays.
struct CellVariant {
  const Problem* problem = nullptr;
  ResidencyProgram program;
};

struct CellSize {
  Bytes device = 0, host = 0;
  bool least_host = false;  // host bytes are to be as few as possible
  bool smallest = false;    // no cell has less device memory
  // Choices that take longer are not looked for.
  double most_seconds = std::numeric_limits<double>::infinity();
};

struct CellCandidate {
  const Problem* problem = nullptr;
  Choices choices;
  double seconds = 0;  // estimated
  Bytes host_bytes = 0;
  Bytes serial_bytes = 0;  // live bytes that no cap lowers
};

// The best estimate first, or the fewest host bytes. `sketches`: schedules that were made for it.
std::vector<CellCandidate> find_candidates(const std::vector<std::unique_ptr<CellVariant>>& variants,
                                           const CellSize& size, const PlannerSettings& settings,
                                           std::size_t& sketches);

}  // namespace stowage
