// ExecutionLane: who runs a lane's tasks: a worker thread, or the caller at once in virtual time.
#pragma once

#include <memory>

#include "src/device/simulated/lane_runner.h"

namespace stowage::simulated {

class ExecutionLane {
 public:
  virtual ~ExecutionLane() = default;  // after the tasks that were submitted
  // In order; one caller at a time.
  virtual void submit(const Task& task) = 0;
};

std::unique_ptr<ExecutionLane> make_execution_lane(Executor executor, LaneRunner runner);

}  // namespace stowage::simulated
