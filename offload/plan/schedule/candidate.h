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
  // Live bytes of the serial sketch: no sketch has fewer.
  Bytes serial_bytes() const { return serial_bytes_; }
  Sketch serial() const;
  // With at most `cap` live bytes, or as many as the serial sketch has where those are more. `gathers_ahead`:
  // as make_lifetimes takes it, where the cap has room for that.
  Sketch within(Bytes cap, std::uint32_t gathers_ahead) const;
  // With no more transfers ahead of use, whatever their bytes; 0: serial.
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

// Estimated step time. Who needs bytes waits until enough are free, ignoring fragmentation, out of a
// hundredth more than the sketch's live bytes.
double estimated_seconds(const Problem& problem, const Sketch& sketch);

// Waits that a plan gets beside those that it needs (policies/policies.h), before it is simulated.
using AddWaits = std::function<void(const Draft&, Plan&)>;

// Seconds. No plan of this draft takes less, wherever its lifetimes stand: counted without waits for bytes,
// and with lanes that do not slow each other.
double least_seconds(const Problem& problem, const Draft& draft, const AddWaits& more = {});

// Host bytes that every plan of this draft takes.
Bytes host_bytes(const Problem& problem, const Draft& draft);

// Placement, instructions, simulation and accounts. Not validated.
Plan complete(const Problem& problem, const Draft& draft, const AddWaits& more = {});
// The same with the offsets of lifetimes given.
Plan complete_at(const Problem& problem, const Draft& draft, const std::vector<Bytes>& offsets,
                 const AddWaits& more = {});

// The op at which most bytes are live.
std::string tightest_op(const Problem& problem, const Draft& draft);

}  // namespace stowage
