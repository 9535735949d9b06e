// The order in which a period's ops and loads start, searched for: beam search (Lowerre, "The Harpy Speech
// Recognition System", 1976) over lists of jobs by their start. For small graphs.
//
// A schedule is a list of its jobs in which none starts before the one ahead of it. The next in a list, an op
// or a load that could go, starts as early as its lane, what it needs and free bytes allow; offloads start
// when they can, since they give bytes and take none. So an op may wait for a larger load that is needed
// later, and the other way round. Of the lists of one length those go on whose lanes could end soonest if
// bytes were no matter; of two with the same jobs, the one that is nowhere later.
#pragma once

#include <vector>

#include "offload/plan/period.h"

namespace stowage {

struct OrderEffort {
  std::size_t width = 16;      // lists of one length that go on
  std::size_t most_found = 1;  // the best of those at the end
  bool may_join = true;        // a load may go on with the bytes of the one before, if they are still there
  std::vector<Postponement> postponed{};
  std::size_t* labels_left = nullptr;  // where given, work: the lists looked at are taken away from it
};
struct FoundOrder {
  PeriodTimes times;
  double seconds = 0;  // of the period
};
// Fastest first, all in less than `cutoff`. None for periods of more than 64 loads.
std::vector<FoundOrder> search_orders(const PeriodRates& rates, const Period& period, Bytes limit,
                                      double cutoff, const OrderEffort& effort);

// Those that have one load elsewhere in the list of one that was found, all in less than `cutoff`: what takes
// as long may have places. None of lists with joined loads or offloads that are put off.
std::vector<FoundOrder> moved_orders(const PeriodRates& rates, const Period& period, Bytes limit,
                                     double cutoff, const PeriodTimes& times);

// No order of this period takes less.
double order_bound(const PeriodRates& rates, const Period& period);
// What has an offload, but for the last.
std::vector<LifetimeId> postponable(const Period& period);

}  // namespace stowage
