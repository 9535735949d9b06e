// Saved graphs: `stowage plan graph.json`.
#include "tests/fuzz/planning.h"
#include "tests/fuzz/target.h"
#include "tests/support/chain_graph.h"
#include "tests/support/random_graph.h"
#include "tests/support/small_graph.h"

namespace stowage::fuzz {

std::vector<std::string> seeds() {
  Graph timed = test::small_graph();
  for (Op& op : timed.ops) op.cost.seconds = 1e-4;
  const Graph split = testing::random_graph(
      1, {.max_units = 1, .max_ops_per_unit = 2, .micro_batches = 4, .gradient_groups = 4});
  Graph frozen = testing::random_graph(3, {.max_units = 2, .frozen_percent = 50, .fixed_percent = 50});
  frozen.ops[0].cost.type = DataType::bf16;
  frozen.tokens = 8;
  return {to_json(test::small_graph()),
          to_json(timed),
          to_json(testing::chain_graph({.units = 2})),
          to_json(split),
          to_json(frozen),
          to_json(Graph{})};
}

std::vector<std::string> dictionary() {
  return {"\"tensors\"",
          "\"parameter\"",
          "\"gradient\"",
          "\"optimizer_state\"",
          "\"activation\"",
          "\"input\"",
          "\"f64\"",
          "\"workspace\"",
          "\"i16\"",
          "\"bf16\"",
          "\"forward\"",
          "\"backward\"",
          "\"update\"",
          "null",
          "\"seconds\"",
          "[0, 0]",
          "[[]]",
          "\"unit\": null",
          "\"shape\"",
          "\"stowage-graph\"",
          "\"accumulate\"",
          "\"gradient_groups\": 2",
          "\"trained\": false",
          "\"replayable\": false",
          "\"computes_in\": \"f16\"",
          "\"tokens\": 8"};
}

}  // namespace stowage::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stowage;
  const auto graph = fuzz::parsed_or_refused([&] { return graph_from_json(fuzz::text_of(data, size)); });
  if (!graph) return 0;
  fuzz::check_round_trip(
      *graph, [](const Graph& of) { return to_json(of); }, graph_from_json);
  fuzz::plan_or_refuse(*graph);
  return 0;
}
