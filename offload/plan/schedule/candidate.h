// From choices to a plan: lifetimes, schedule, placement, instructions and simulation, pass by pass.
#pragma once

#include <functional>
#include <string>

#include "offload/plan/problem/problem.h"
#include "offload/plan/schedule/lifetimes.h"
#include "offload/plan/schedule/schedule.h"
#include "stowage/planner.h"

namespace stowage {

// A scheduled draft before placement.
struct Sketch {
  Draft draft;
  Bytes live_peak_bytes = 0;
};
// Sketches of the same choices under several caps. Keeps a reference to the problem.
class Sketcher {
 public:
  Sketcher(const Problem& problem, const Choices& choices);
  // Returns the live bytes of the serial sketch; no sketch has fewer.
  Bytes serial_bytes() const { return serial_bytes_; }
  Sketch serial() const;
  // Returns the sketch with at most `cap` live bytes, or with the serial sketch's live bytes if these are
  // more. Replayed gathers overtake `gathers_ahead` exchanges (make_lifetimes) if a serial sketch of that
  // order fits into the cap.
  Sketch within(Bytes cap, std::uint32_t gathers_ahead) const;
  // Returns the sketch with at most `distance` prefetches ahead of their use and at most `distance` offloads
  // beside an op, whatever their bytes. Distance 0 gives the serial sketch.
  Sketch ahead(std::uint32_t distance) const;

 private:
  Sketch measured(Draft draft) const;

  Durations durations_of(const Draft& draft) const;

  const Problem& problem_;
  Choices choices_;
  Draft draft_;
  Durations durations_;
  Bytes serial_bytes_ = 0;
};

// Returns the estimated step time in seconds. Prefetches and gathers claim their bytes as early as a cap of
// 1.01 times the sketch's live bytes allows. An instruction that needs bytes waits until enough are free,
// ignoring fragmentation.
double estimated_seconds(const Problem& problem, const Sketch& sketch);

// Adds extra waits (policies/policies.h), which the plan does not need, before the plan is simulated.
using AddWaits = std::function<void(const Draft&, Plan&)>;

// Returns a lower bound, in seconds, on the step time of every plan of this draft, whatever the offsets of
// its lifetimes. The bound leaves out waits for bytes and lanes that slow each other.
double least_seconds(const Problem& problem, const Draft& draft, const AddWaits& more = {});

// Returns the host bytes that every plan of this draft takes.
Bytes host_bytes(const Problem& problem, const Draft& draft);

// Makes the draft's plan: placement, instructions, simulation and accounts. Does not validate the plan.
Plan complete(const Problem& problem, const Draft& draft, const AddWaits& more = {});
// Makes the draft's plan with the given offset of each lifetime.
Plan complete_at(const Problem& problem, const Draft& draft, const std::vector<Bytes>& offsets,
                 const AddWaits& more = {});

// Returns the name of the op at which most bytes are live.
std::string tightest_op(const Problem& problem, const Draft& draft);

}  // namespace stowage
