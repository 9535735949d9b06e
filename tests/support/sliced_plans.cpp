#include "tests/support/sliced_plans.h"

#include <gtest/gtest.h>

#include "offload/plan/decisions/extreme_choices.h"
#include "offload/plan/schedule/candidate.h"
#include "stowage/models.h"

namespace stowage::testing {

Graph sliced_gpt(DataType type, std::int64_t micro_batches, GraphBuilder::Trained trained) {
  GraphBuilder builder(type, trained);
  std::optional<std::int64_t> head;  // head that makes no gradients, where there are none
  if (trained == GraphBuilder::Trained::none) head = 0;
  const BuiltModel model = gpt(builder, {.layers = 1,
                                         .width = 16,
                                         .heads = 2,
                                         .vocabulary = sliced_vocabulary,
                                         .sequence = 4,
                                         .batch = 2,
                                         .micro_batches = micro_batches,
                                         .head_tokens = head});
  const Bytes table = Bytes{sliced_vocabulary} * 16 * size_of(type);
  const ChunkGrid grid{.slice_bytes = table / slices_of_table,
                       .most_slices = slices_of_table,
                       .least_slices = 2,
                       .least_share = 0.2};
  return builder.finish(model.loss, {.grid = grid});
}

Plan plan_in_slices(const Graph& graph, const Machine& machine, std::uint32_t on_device, Bytes cap,
                    OtherUpdates others) {
  const Problem problem = make_problem(graph, machine, {.target_bytes = 256});
  Choices choices = lowest_choices(problem);
  choices.speculated.assign(problem.layout.buckets.size(), 0);
  for (BucketId id : problem.layout.parameters) {
    if (problem.layout.slices[id].empty()) {
      choices.speculated[id] = others == OtherUpdates::early && problem.undo_bytes[id] > 0;
      continue;
    }
    choices.loads[id] = LoadChoice::in_slices;
    choices.device_slices[id] = on_device;
  }
  const Sketcher sketcher(problem, choices);
  Plan plan = complete(problem, (cap == 0 ? sketcher.serial() : sketcher.within(cap, 0)).draft);
  plan.policy = "auto";
  return plan;
}

BucketId find_bucket(const Plan& plan, const std::string& name) {
  for (BucketId id = 0; id < plan.buckets.size(); ++id)
    if (plan.buckets[id].name == name) return id;
  ADD_FAILURE() << "no bucket " << name;
  return no_id;
}

}  // namespace stowage::testing
