#include "offload/plan/order_search.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "offload/plan/limited_schedule.h"
#include "offload/plan/residency.h"
#include "tests/support/chain_graph.h"
#include "tests/support/random_graph.h"

namespace stowage {
namespace {

constexpr double never = std::numeric_limits<double>::infinity();

struct Setting {
  explicit Setting(std::uint64_t seed)
      : graph(testing::random_graph(seed, {.max_units = 2, .max_ops_per_unit = 2})),
        machine(testing::random_machine(seed)),
        problem(make_problem(graph, machine, {.target_bytes = 0})),
        rates(problem) {}
  Graph graph;
  Machine machine;
  Problem problem;
  PeriodRates rates;
};

// One after another on the link, behind the offload that makes the host's copy, and each in time.
void expect_loads_in_turn(const Setting& setting, const Period& period, const FoundOrder& order) {
  double link = 0;
  for (LifetimeId id : order.times.loads) {
    EXPECT_GE(order.times.begin[id], link);
    link = order.times.begin[id] + setting.rates.h2d[period.draft.lifetimes[id].bucket];
    const auto use = static_cast<std::size_t>(period.draft.lifetimes[id].first_use);
    EXPECT_LE(link, (order.times.ends[use] - period.seconds[use]) * (1 + 1e-9));
    const LifetimeId before = period.before[id];
    if (before == no_id || !period.draft.lifetimes[before].offloaded) continue;
    EXPECT_GE(order.times.begin[id], order.times.end[before]);
  }
}

// Within its limit no lane does two things at once, and each op has what it loads; and never slower than the
// order of need, which is one of its lists.
TEST(OrderSearch, ItsOrdersKeepTheRulesAndBeatTheOrderOfNeed) {
  int found = 0, faster = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Setting setting(seed);
    const LimitedScheduler scheduler(setting.problem);
    const auto most = scheduler.run(lowest_choices(setting.problem), unlimited);
    ASSERT_TRUE(most);
    const Period& period = *most->period;
    for (Bytes limit : {most->peak, most->peak - most->peak / 6, most->peak - most->peak / 4}) {
      const auto sketch = scheduler.run(most->period, limit);
      const auto orders = search_orders(setting.rates, period, limit, never, {.width = 64, .most_found = 3});
      if (!sketch || orders.empty()) continue;
      ++found;
      EXPECT_LE(orders.front().seconds, sketch->seconds * (1 + 1e-9));
      faster += orders.front().seconds < sketch->seconds * (1 - 1e-6) ? 1 : 0;
      for (const FoundOrder& order : orders) {
        EXPECT_LE(peak_of(period, order.times), align_up(limit, Plan{}.alignment));
        expect_loads_in_turn(setting, period, order);
        double compute = 0;
        for (Position p : period.order) {
          const auto at = static_cast<std::size_t>(p);
          EXPECT_GE(order.times.ends[at], (compute + period.seconds[at]) * (1 - 1e-9));
          compute = order.times.ends[at];
        }
      }
    }
  }
  EXPECT_GT(found, 60);
  EXPECT_GT(faster, 3);
}

// With the same rules, none too slow, and not the order that they are from again and again.
TEST(OrderSearch, ALoadElsewhereKeepsTheRules) {
  int found = 0, other_lists = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Setting setting(seed);
    const LimitedScheduler scheduler(setting.problem);
    const auto most = scheduler.run(lowest_choices(setting.problem), unlimited);
    ASSERT_TRUE(most);
    const Period& period = *most->period;
    const Bytes limit = most->peak - most->peak / 6;
    for (const FoundOrder& base :
         search_orders(setting.rates, period, limit, never, {.width = 64, .may_join = false})) {
      const double cutoff = base.seconds * 1.1;
      for (const FoundOrder& order : moved_orders(setting.rates, period, limit, cutoff, base.times)) {
        ++found;
        other_lists += order.times.loads != base.times.loads ? 1 : 0;
        EXPECT_LT(order.seconds, cutoff);
        EXPECT_LE(peak_of(period, order.times), align_up(limit, Plan{}.alignment));
        EXPECT_TRUE(std::is_permutation(order.times.loads.begin(), order.times.loads.end(),
                                        base.times.loads.begin(), base.times.loads.end()));
        expect_loads_in_turn(setting, period, order);
      }
      PeriodTimes put_off = base.times;
      put_off.postponed.emplace_back(0, 0);
      EXPECT_TRUE(moved_orders(setting.rates, period, limit, never, put_off).empty());
    }
  }
  EXPECT_GT(found, 150);
  EXPECT_GT(other_lists, 20);
}

// Loads, of the bucket that is put off too, come behind the offload that makes the host's copy.
TEST(OrderSearch, NothingIsReadBeforeItsOffloadThatIsPutOff) {
  int found = 0, read_again = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Setting setting(seed);
    const LimitedScheduler scheduler(setting.problem);
    const auto most = scheduler.run(lowest_choices(setting.problem), unlimited);
    ASSERT_TRUE(most);
    const Period& period = *most->period;
    const std::vector<LifetimeId> ids = postponable(period);
    for (LifetimeId id : ids)
      for (int by : {0, 1, 2, 3}) {
        std::vector<Postponement> postponed{{id, by % 3}};
        if (by == 3 && id != ids.back()) postponed.push_back({ids.back(), 1});
        for (const FoundOrder& order :
             search_orders(setting.rates, period, most->peak, never, {.postponed = postponed})) {
          ++found;
          EXPECT_EQ(order.times.postponed.size(), postponed.size());
          EXPECT_LE(peak_of(period, order.times), align_up(most->peak, Plan{}.alignment));
          for (LifetimeId load : order.times.loads) {
            const LifetimeId before = period.before[load];
            if (before == no_id || !period.draft.lifetimes[before].offloaded) continue;
            read_again += before == id ? 1 : 0;
            EXPECT_GE(order.times.begin[load], order.times.end[before]);
          }
        }
      }
  }
  EXPECT_GT(found, 60);
  EXPECT_GT(read_again, 20);
}

// The host updates W1 first, so that it is there when a large W1 is loaded ahead of W0.
TEST(OrderSearch, TheHostUpdatesInTheOrderOfLoads) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Setting setting(seed);
    const Period period = make_period(setting.problem, setting.rates, lowest_choices(setting.problem));
    for (const FoundOrder& order : search_orders(setting.rates, period, unlimited, never, {})) {
      double host = 0;
      for (BucketId bucket : order.times.host_order) {
        host += setting.rates.host_update[bucket];
        const auto load =
            std::find_if(order.times.loads.begin(), order.times.loads.end(),
                         [&](LifetimeId id) { return period.draft.lifetimes[id].bucket == bucket; });
        ASSERT_NE(load, order.times.loads.end());
        EXPECT_GE(order.times.begin[*load], host * (1 - 1e-9));
      }
    }
  }
}

TEST(OrderSearch, GivesUpAtItsCutoffAndCountsItsWork) {
  const Setting setting(3);
  const Period period = make_period(setting.problem, setting.rates, lowest_choices(setting.problem));
  std::size_t left = 1'000'000;
  const auto orders = search_orders(setting.rates, period, unlimited, never, {.labels_left = &left});
  ASSERT_EQ(orders.size(), 1U);
  EXPECT_LT(left, 1'000'000U);
  EXPECT_TRUE(search_orders(setting.rates, period, unlimited, orders.front().seconds, {}).empty());
}

}  // namespace
}  // namespace stowage
