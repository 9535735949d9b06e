// Fits the numbers that the planner has for ops and for a link to measured times.
#pragma once

#include <span>
#include <vector>

#include "stowage/graph.h"
#include "stowage/machine.h"
#include "stowage/machine_file.h"

namespace stowage {

// Says which rates of a machine were measured; the others are Machine's defaults.
struct FittedRates {
  bool arithmetic = false;
  bool memory = false;
};

// The measured time of an op.
struct OpTime {
  OpCost cost;
  double seconds = 0;
};

// Adds the time of `op` for fit_rates. Leaves out ops that run at other rates: updates, which are made on the
// host, and ops of the codec (Machine::codec).
void add_time(const Op& op, double seconds, std::vector<OpTime>& times);

// Fits the two rates of op_seconds (src/graph/cost.h): ops are told apart by what binds them under the rates
// found so far. A rate of `machine` stays if no op is bound by it. Returns which rates were fitted.
FittedRates fit_rates(std::span<const OpTime> times, Machine& machine);

// Fits latency and peak of seconds = latency + bytes / peak by least squares, each error weighted by 1 /
// seconds: long copies decide the peak and short ones the latency, though their times are thousands of times
// shorter. Latency is no less than 0. Throws InvalidInput unless there are copies of two sizes, all of
// positive time.
Link fit_link(std::span<const CopySample> samples);

}  // namespace stowage
