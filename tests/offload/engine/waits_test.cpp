// Every wait of a plan, removed: the device sees the race, or the wait was implied by the others.
#include <gtest/gtest.h>

#include "stowage/simulated_device.h"
#include "tests/offload/engine/tiny_step.h"
#include "tests/offload/engine/wait_sweep.h"

namespace stowage {
namespace {

using namespace stowage::testing;

TEST(Waits, EachOneOfTheTinyPlansIsCaught) {
  for (const Plan& plan : {tiny_streamed_plan(), tiny_resident_plan()}) {
    const WaitSweep sweep = sweep_waits(tiny_graph(), plan, tiny_kernels(), 5);
    EXPECT_EQ(sweep.implied, 0);
    EXPECT_EQ(sweep.caught, plan.policy == "auto" ? 8 : 5);
  }
}

}  // namespace
}  // namespace stowage
