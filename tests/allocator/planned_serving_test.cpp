#include "allocator/planned_serving.h"

#include <gtest/gtest.h>

#include <vector>

#include "stowage/simulated_device.h"
#include "tests/allocator/device_decorator.h"

namespace stowage::caching {
namespace {

using Answer = PlannedServing::Answer;
using Change = PlannedServing::Change;

class PlannedServingTest : public testing::Test {
 protected:
  static constexpr Bytes granule = 2_MiB;
  std::unique_ptr<SimulatedDevice> simulated =
      open_simulated_device({.capacity = 64_MiB, .executor = Executor::virtual_time});
  DeviceDecorator device{*simulated};
  History history{0};
  MappedMemory memory{device, 1_GiB, 32_MiB, history};  // 16 granules
  Pool pool{default_pool, 0, Interval{0, 256_MiB}, granule};
  PlannedServing planned{{256_MiB, 512_MiB}, memory, pool};
  LaneClock clock;
  std::exception_ptr failure;

  Change change() {
    return planned.change([] { return Bytes{0}; });
  }

  // An iteration whose requests nobody's plan serves; the pool has the memory for them.
  void record(const std::vector<Bytes>& sizes) {
    planned.begin_iteration();
    std::vector<PlannedServing::Ticket> tickets;
    for (const Bytes bytes : sizes) tickets.push_back(planned.ask(bytes, 0).ticket);
    for (const auto ticket : tickets) planned.free(ticket);
  }
  // A plan of two requests of two granules each, in use from now on.
  void make_plan() {
    ASSERT_TRUE(memory.map(pool.heap, pool, {{0, 4}}, failure));
    record({2 * granule, 2 * granule});
    planned.begin_iteration();
    ASSERT_EQ(change(), Change::new_plan);
  }
  Interval place_of(const Answer& answer) {
    EXPECT_TRUE(answer.place.has_value());
    return answer.place.value_or(Interval{});
  }
};

TEST_F(PlannedServingTest, AsksForWayOnce) {
  planned.begin_iteration();
  EXPECT_EQ(change(), Change::none);
  make_plan();
  EXPECT_EQ(change(), Change::none) << "it has been told";
  planned.make_way(Change::new_plan);
  EXPECT_EQ(memory.mapped(), 0u) << "what served without a plan is not needed";
  planned.ask(2 * granule, 0);
  EXPECT_EQ(change(), Change::none);
}

TEST_F(PlannedServingTest, BacksThePlaceThatItNames) {
  make_plan();
  planned.make_way(Change::new_plan);
  const Answer answer = planned.ask(2 * granule, 0);
  const Interval place = place_of(answer);
  EXPECT_EQ(place, (Interval{256_MiB, 260_MiB}));
  EXPECT_EQ(planned.missing(place), 2u);
  EXPECT_TRUE(planned.waits(place, clock).empty());
  ASSERT_TRUE(planned.back(place));
  EXPECT_EQ(planned.missing(place), 0u);
  planned.take(place);
  EXPECT_EQ(planned.statistics().allocated, 2 * granule);
  EXPECT_EQ(planned.statistics().hits, 1u);
  EXPECT_EQ(pool.reserved, 2u);
  EXPECT_EQ(planned.lend(9), 0u) << "a block lies there";
  planned.free(answer.ticket);
  planned.give(place, {});
  EXPECT_EQ(planned.unused_bytes(), 2 * granule);
  EXPECT_EQ(planned.lendable(1), 1u);
  EXPECT_EQ(planned.lend(9), 2u);
  EXPECT_EQ(memory.mapped(), 0u);
}

TEST_F(PlannedServingTest, LendsNothingThatALaneMayBeUsing) {
  make_plan();
  const Answer answer = planned.ask(2 * granule, 0);
  const Interval place = place_of(answer);
  ASSERT_TRUE(planned.back(place));
  planned.take(place);
  planned.free(answer.ticket);
  planned.give(place, {Tag{&clock, 1}});
  LaneClock other;
  EXPECT_EQ(planned.waits(place, other).size(), 1u);
  EXPECT_TRUE(planned.waits(place, clock).empty()) << "its own order is enough";
  EXPECT_EQ(planned.lend(9), 0u);
  clock.passed = 1;
  EXPECT_EQ(planned.lend(9), 2u);
}

TEST_F(PlannedServingTest, MovesMemoryBeforeItTakesMore) {
  make_plan();
  memory.set_limit(4 * granule);  // all of which the pool has
  const Interval place = place_of(planned.ask(2 * granule, 0));
  ASSERT_TRUE(planned.back(place));
  EXPECT_EQ(memory.mapped(), 4u);
  EXPECT_EQ(pool.heap.spare().count(), 2u);
}

TEST_F(PlannedServingTest, WithoutMemoryItDeclines) {
  make_plan();
  planned.make_way(Change::new_plan);
  device.fails = [](const std::string& call) { return call == "map"; };
  const Answer answer = planned.ask(2 * granule, 0);
  EXPECT_FALSE(planned.back(place_of(answer)));
  planned.decline(answer.ticket);
  EXPECT_EQ(planned.statistics().hits, 0u);
  EXPECT_EQ(planned.statistics().misses, 1u);
  EXPECT_EQ(planned.statistics().allocated, 0u);
  planned.free(answer.ticket);
}

TEST_F(PlannedServingTest, RejectsAPlanThatNeedsMoreThanServingWithout) {
  record({2 * granule, 2 * granule});  // from nothing: no memory was mapped for it
  planned.begin_iteration();
  EXPECT_EQ(change(), Change::none);
  EXPECT_FALSE(planned.ask(2 * granule, 0).place);
  EXPECT_EQ(planned.statistics().plans, 1u);
}

TEST_F(PlannedServingTest, BlocksThatStayCountAgainstAPlan) {
  ASSERT_TRUE(memory.map(pool.heap, pool, {{0, 4}}, failure));
  record({2 * granule, 2 * granule});
  planned.begin_iteration();
  EXPECT_EQ(planned.change([] { return 2 * granule; }), Change::none);
}

TEST_F(PlannedServingTest, AKnownPlanLeavesThePoolWhatItWillNotTake) {
  make_plan();
  planned.make_way(Change::new_plan);
  // Other requests give the plan up for this iteration; they stay, so that no plan is made of them.
  for (int i = 0; i < 20; ++i) planned.ask(512, 7);
  ASSERT_EQ(change(), Change::none);
  ASSERT_TRUE(memory.map(pool.heap, pool, {{0, 10}}, failure));
  planned.begin_iteration();
  ASSERT_EQ(change(), Change::known_plan);
  planned.make_way(Change::known_plan);
  EXPECT_EQ(memory.mapped(), 4u) << "the plan will move these";
}

}  // namespace
}  // namespace stowage::caching
