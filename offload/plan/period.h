// One period of given choices, gate to gate: what the compute lane and the links have to do; and, once a pass
// has said when they do it, the draft for instructions and placement.
#pragma once

#include <memory>
#include <vector>

#include "offload/plan/candidate.h"

namespace stowage {

// Seconds and bytes that no choice changes.
struct PeriodRates {
  explicit PeriodRates(const Problem& problem);
  std::vector<double> op;           // by op
  std::vector<double> h2d, d2h;     // by bucket
  std::vector<Bytes> bytes;         // by bucket, aligned
  std::vector<double> host_update;  // by parameter bucket
  double gate = 0;
};

struct Period {
  Choices choices;
  Draft draft;                       // without first, last and spans
  std::vector<Position> order;       // positions as a period has them: updates, then forward and backward
  std::vector<double> seconds;       // by position
  std::vector<Bytes> bytes;          // by lifetime, aligned
  std::vector<LifetimeId> before;    // by prefetched lifetime: its bucket's lifetime before it, or no_id
  std::vector<double> host_seconds;  // by bucket: of its host update; 0 where it has none
  std::vector<double> ready;         // by bucket: the end of its host update; 0 where it has none
  std::vector<std::vector<LifetimeId>> firsts, lasts;  // by position; without residents
  Bytes live_at_gate = 0;
  double host_end = 0, compute_seconds = 0;

  std::size_t updates() const { return static_cast<std::size_t>(draft.backward_end); }
  // Made before the gate, read by an update behind it.
  bool crosses(LifetimeId id) const {
    const DraftLifetime& lifetime = draft.lifetimes[id];
    return !lifetime.resident && lifetime.first_use < draft.backward_end &&
           lifetime.last_use >= draft.backward_end;
  }
};
Period make_period(const Problem& problem, const PeriodRates& rates, const Choices& choices);

// An offload that goes behind those of its own op (0), or of the first or a later of the next ops that have
// any.
struct Postponement {
  LifetimeId id = no_id;
  int by = 0;
};

struct PeriodTimes {
  std::vector<double> ends;          // by position
  std::vector<double> begin, end;    // by lifetime: of its bytes
  std::vector<LifetimeId> joined;    // by lifetime: the one before, whose bytes it goes on with, or no_id
  std::vector<LifetimeId> loads;     // in the link's order
  std::vector<BucketId> host_order;  // as Draft has it
  // Whose offloads stand behind those of another op, and of which.
  std::vector<std::pair<LifetimeId, Position>> postponed;
  double last = 0;  // of all lanes but the host's
};
// The most bytes at one time.
Bytes peak_of(const Period& period, const PeriodTimes& times);
// `late`: which of each 64 loads, in the link's order, start not as soon as `times` says but as late as their
// uses and those behind them on the link allow.
Draft timed_draft(const PeriodRates& rates, const Period& period, const PeriodTimes& times,
                  std::uint64_t late);

}  // namespace stowage
