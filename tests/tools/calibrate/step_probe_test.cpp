#include "tools/calibrate/step_probe.h"

#include <gtest/gtest.h>

#include "src/graph/cost.h"
#include "stowage/error.h"
#include "stowage/graph_builder.h"
#include "stowage/models.h"
#include "stowage/planner.h"
#include "tests/tools/calibrate/virtual_machine.h"

namespace stowage {
namespace {

struct Small {
  Graph graph;
  std::vector<ModelInput> inputs;
};

Small small(std::int64_t micro_batches) {
  GraphBuilder builder;
  const BuiltModel model = gpt(builder, {.layers = 2,
                                         .width = 8,
                                         .heads = 2,
                                         .vocabulary = 16,
                                         .sequence = 4,
                                         .batch = 2,
                                         .micro_batches = micro_batches});
  return {builder.finish(model.loss, AdamW{}), model.inputs};
}

// In virtual time an op takes what the machine says, and nothing disturbs it.
TEST(StepProbe, KnowsWhatEachOpTook) {
  for (const std::int64_t micro_batches : {1, 2}) {
    const Machine machine = test::odd_machine();
    const auto device = test::open_virtual_device(machine);
    Small model = small(micro_batches);
    StepProbe probe(*device, model.graph, model.inputs, {.kernels = {}, .modelled = machine, .budget = {}});
    int more = 2;
    const StepProbe::Step step = probe.steps(1, [&] { return more-- > 0; });
    EXPECT_EQ(more, -1);
    ASSERT_EQ(step.ops.size(), model.graph.ops.size());
    double sum = 0;
    for (OpId id = 0; id < step.ops.size(); ++id) {
      const Op& op = model.graph.op(id);
      if (op.kernel == "clip") continue;  // on the host
      EXPECT_NEAR(step.ops[id] / op_seconds(op, machine), 1, 1e-6) << op.name;
      sum += op_seconds(op, machine);
    }
    EXPECT_NEAR(step.busy / sum, 1, 1e-6);
    EXPECT_GT(step.whole, step.busy);  // it waits for its gate
  }
}

// In less memory than the step needs: transfers and replays change no op's time.
TEST(StepProbe, KnowsWhatEachOpTookInLittleMemory) {
  const Machine machine = test::odd_machine();
  const auto device = test::open_virtual_device(machine);
  Small model = small(1);
  const Bytes least = minimum_bytes(model.graph, Machine{});
  ASSERT_LT(least, need_bytes(model.graph, Machine{}));
  StepProbe probe(*device, model.graph, model.inputs,
                  {.kernels = {}, .modelled = machine, .budget = {.device = least}});
  EXPECT_LE(device->counters().highest_device_byte, least);
  const StepProbe::Step step = probe.steps(1, [] { return false; });
  std::size_t told = 0;
  for (OpId id = 0; id < step.ops.size(); ++id) {
    if (step.ops[id] == 0) continue;  // on the host
    ++told;
    EXPECT_NEAR(step.ops[id] / op_seconds(model.graph.op(id), machine), 1, 1e-6) << model.graph.op(id).name;
  }
  EXPECT_GT(told, model.graph.ops.size() / 2);
  EXPECT_THROW(StepProbe(*device, model.graph, model.inputs,
                         {.kernels = {}, .modelled = {}, .budget = {.device = least / 2}}),
               OutOfMemory);
}

TEST(StepProbe, SharesAreParts) {
  const auto device = open_simulated_device({.capacity = unlimited});
  const Small model = small(1);
  StepProbe probe(*device, model.graph, model.inputs);
  const double alone = probe.steps(2, [] { return false; }).whole;
  Machine machine;
  measure_shares(probe, alone, Link{}, machine);
  for (const double share :
       {machine.compute_beside_copy, machine.compute_beside_host, machine.host_beside_compute}) {
    EXPECT_GT(share, 0);
    EXPECT_LE(share, 1);
  }
}

}  // namespace
}  // namespace stowage
