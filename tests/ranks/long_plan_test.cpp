// The longest text that ranks hand out is a plan.
#include <gtest/gtest.h>

#include <future>
#include <variant>

#include "stowage/channel.h"
#include "stowage/graph_builder.h"
#include "stowage/models.h"
#include "stowage/planner.h"

namespace stowage {
namespace {

// GPT-3 with eight micro-batches, each of whose activations it names.
TEST(LongPlan, OfTheLargestModelIsHandedOut) {
  GraphBuilder builder(DataType::bf16);
  const ModelConfig config{
      .layers = 96, .width = 12288, .heads = 96, .sequence = 2048, .batch = 8, .micro_batches = 8};
  const Graph graph = builder.finish(gpt(builder, config).loss, {});
  PlanOptions options;
  options.policy = Policy::zero_infinity;
  Machine machine;
  machine.h2d = machine.d2h = {.bytes_per_second = 25e9, .latency_seconds = 1e-5, .throttled = true};
  Planner planner(graph, machine, options);
  const std::string text = to_json(std::get<Plan>(planner.answer({.device = planner.need_bytes()}).outcome));
  EXPECT_GT(text.size(), std::size_t{10} << 20);

  const auto channels = local_channels(2);
  auto handing_out = std::async(std::launch::async, [&] { return channels[0]->from(0, text); });
  EXPECT_TRUE(channels[1]->from(0, {}) == text);
  EXPECT_TRUE(handing_out.get() == text);
}

}  // namespace
}  // namespace stowage
