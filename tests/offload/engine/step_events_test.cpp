#include "offload/engine/step_events.h"

#include <gmock/gmock.h>

#include <set>

#include "stowage/simulated_device.h"
#include "tests/offload/engine/tiny_step.h"

namespace stowage {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using namespace stowage::testing;

class StepEventsTest : public ::testing::Test {
 protected:
  StepEvents events_for(const Plan& plan, Measurement measurement) {
    return {*device_, plan, {}, measurement};
  }
  static std::vector<InstructionId> begins(const StepEvents& events, const Plan& plan) {
    std::vector<InstructionId> result;
    for (InstructionId id = 0; id < plan.instructions.size(); ++id)
      if (events.records_begin(id)) result.push_back(id);
    return result;
  }
  static std::vector<InstructionId> ends(const StepEvents& events, const Plan& plan) {
    std::vector<InstructionId> result;
    for (InstructionId id = 0; id < plan.instructions.size(); ++id)
      if (events.records_end(id)) result.push_back(id);
    return result;
  }
  // Whether the device knows a time of the instruction's end.
  bool is_timed(const StepEvents& events, InstructionId id) {
    try {
      device_->record(events.end(0, id), lane_.id());
      device_->synchronise(events.end(0, id));
      device_->elapsed_seconds(events.end(0, id), events.end(0, id));
      return true;
    } catch (const Error&) {
      return false;
    }
  }

  std::unique_ptr<SimulatedDevice> device_ = open_simulated_device({});
  const Lane lane_{*device_, LaneRole::compute};
  const Plan streamed_ = tiny_streamed_plan();
  const Plan resident_ = tiny_resident_plan();
};

TEST_F(StepEventsTest, AStepsSecondsTakeNoEventButThoseThatAreWaitedFor) {
  const StepEvents events = events_for(resident_, Measurement::step);
  EXPECT_THAT(begins(events, resident_), IsEmpty());
  std::set<InstructionId> waited{resident_.gate};
  for (const Instruction& instruction : resident_.instructions)
    for (const Wait& wait : instruction.waits) waited.insert(wait.instruction);
  EXPECT_EQ(ends(events, resident_), std::vector<InstructionId>(waited.begin(), waited.end()));
  for (const InstructionId id : waited) EXPECT_EQ(is_timed(events, id), id == resident_.gate) << id;
}

// The launches 1, 3, 4 of the resident plan follow on each other; 8 is behind the gate.
TEST_F(StepEventsTest, StallsTakeAPairAroundWhatRunsWithoutWaiting) {
  const StepEvents events = events_for(resident_, Measurement::stalls);
  std::vector<std::pair<InstructionId, InstructionId>> runs;
  for (const StepEvents::Run& run : events.runs()) runs.emplace_back(run.first, run.last);
  EXPECT_THAT(runs, ElementsAre(std::pair(1U, 4U), std::pair(8U, 8U)));
  EXPECT_THAT(begins(events, resident_), ElementsAre(1U, 8U));
  EXPECT_TRUE(events.records_end(4) && events.records_end(8));
  EXPECT_FALSE(events.records_end(3));
  EXPECT_TRUE(is_timed(events, 4));
}

TEST_F(StepEventsTest, ACollectiveHasAPairOfItsOwn) {
  const StepEvents events(*device_, resident_, {}, Measurement::stalls, {3});
  EXPECT_THAT(events.collectives(), ElementsAre(3U));
  EXPECT_THAT(begins(events, resident_), ElementsAre(1U, 3U, 8U));
  EXPECT_TRUE(events.records_end(3) && is_timed(events, 3));
  EXPECT_THAT(StepEvents(*device_, resident_, {}, Measurement::step, {3}).collectives(), IsEmpty());
}

// Every one has an end; a begin of its own only where its lane may have stood still before.
TEST_F(StepEventsTest, ATimelineSharesTheEndsBetweenNeighbours) {
  for (const Plan& plan : {streamed_, resident_}) {
    const StepEvents events = events_for(plan, Measurement::timeline);
    EXPECT_EQ(ends(events, plan).size(), plan.instructions.size());
    std::array<InstructionId, lane_roles> before;
    before.fill(no_id);
    std::size_t shared = 0;
    for (InstructionId id = 0; id < plan.instructions.size(); ++id) {
      const Instruction& instruction = plan.instructions[id];
      InstructionId& newest = before[static_cast<std::size_t>(instruction.lane)];
      const bool shares =
          instruction.waits.empty() && newest != no_id && (newest <= plan.gate) == (id <= plan.gate);
      EXPECT_EQ(events.records_begin(id), !shares) << id;
      if (shares) {
        EXPECT_EQ(events.begin(1, id), events.end(1, newest)) << id;
      }
      shared += shares ? 1 : 0;
      newest = id;
    }
    EXPECT_GT(shared, 0U);
  }
}

}  // namespace
}  // namespace stowage
