// Traces: `stowage plan step.jsonl`.
#include "stowage/trace.h"

#include "tests/fuzz/planning.h"
#include "tests/fuzz/target.h"
#include "tests/support/small_graph.h"
#include "tests/support/trace_text.h"

namespace stowage::fuzz {

namespace {

// A weight that is cast, and one that is not trained.
std::string autocast_and_frozen() {
  return R"({"stowage_trace":2,"loss":"l","optimizer":{"name":"adamw"},"samples":2,"tokens":8}
{"tensor":"x","kind":"input","type":"bf16","shape":[4]}
{"tensor":"v","kind":"parameter","type":"bf16","shape":[4],"trained":false}
{"tensor":"w","kind":"parameter","type":"f32","shape":[4]}
{"tensor":"c","kind":"activation","type":"bf16","shape":[4]}
{"tensor":"l","kind":"activation","type":"f32","shape":[]}
{"op":"to","phase":"forward","unit":"u","kernel":"cast","reads":["w"],"writes":["c"]}
{"op":"f","phase":"forward","unit":"u","reads":["x","v","c"],"writes":["l"],"type":"bf16","replayable":false}
{"tensor":"d","kind":"activation","type":"bf16","shape":[4]}
{"tensor":"g","kind":"gradient","of":"w","type":"f32","shape":[4]}
{"op":"b","phase":"backward","unit":"u","reads":["x","v","c"],"writes":["d"]}
{"op":"from","phase":"backward","unit":"u","kernel":"cast","reads":["d"],"writes":["g"]}
)";
}

}  // namespace

std::vector<std::string> seeds() {
  Graph timed = test::small_graph();
  for (Op& op : timed.ops) op.cost.seconds = 1e-4;
  Graph typed = test::small_graph();
  typed.ops[0].replayable = false;
  typed.ops[1].cost.type = DataType::bf16;
  typed.tokens = 12;
  return {test::trace_example(STOWAGE_ROOT), test::trace_of(test::small_graph()), test::trace_of(timed),
          test::trace_of(typed, 2), autocast_and_frozen()};
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
          "\"forward\"",
          "\"stowage_trace\": 2",
          "\"trained\": false",
          "\"replayable\": false",
          "\"type\": \"bf16\"",
          "\"samples\": 2",
          "\"tokens\": 8",
          "\"kernel\": \"cast\""};
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
