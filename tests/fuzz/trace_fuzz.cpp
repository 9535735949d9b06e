// Traces: `stowage plan step.jsonl`.
#include "stowage/trace.h"

#include "tests/fuzz/planning.h"
#include "tests/fuzz/target.h"
#include "tests/support/small_graph.h"
#include "tests/support/trace_text.h"

namespace stowage::fuzz {

std::vector<std::string> seeds() {
  Graph timed = test::small_graph();
  for (Op& op : timed.ops) op.cost.seconds = 1e-4;
  return {test::trace_example(STOWAGE_ROOT), test::trace_of(test::small_graph()), test::trace_of(timed)};
}

std::vector<std::string> dictionary() {
  return {"\"stowage_trace\": 1",
          "\"tensor\"",
          "\"op\"",
          "\"kind\": \"gradient\"",
          "\"kind\": \"workspace\"",
          "\"optimizer_state\"",
          "\"parameter\"",
          "\"of\"",
          "\"phase\": \"backward\"",
          "\"update\"",
          "\"seconds\": 1e6",
          "\"bytes\": 4",
          "\"may_alias\"",
          "\"workspace\": 16",
          "\"bf16\"",
          "\"shape\": []",
          "\"unit\"",
          "\"clip\"",
          "\"optimizer\"",
          "{\"name\": \"adamw\"}",
          "\"f64\"",
          "\"forward\""};
}

}  // namespace stowage::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stowage;
  const std::string_view text = fuzz::text_of(data, size);
  const auto graph = fuzz::parsed_or_refused([&] { return graph_from_trace(text); });
  if (!graph) return 0;
  if (graph->loss == no_id || graph->clip == no_id)
    fuzz::broken("a trace was read as a graph without a result");
  fuzz::check_round_trip(
      *graph, [](const Graph& of) { return to_json(of); }, graph_from_json);
  fuzz::plan_or_refuse(*graph);
  return 0;
}
