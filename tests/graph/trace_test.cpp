#include "stowage/trace.h"

#include <gtest/gtest.h>

#include "src/graph/cost.h"
#include "stowage/graph_builder.h"
#include "tests/support/expect_refused.h"
#include "tests/support/small_graph.h"
#include "tests/support/trace_text.h"

namespace stowage {
namespace {

std::string with(std::string text, const std::string& what, const std::string& instead) {
  const std::size_t at = text.find(what);
  if (at == std::string::npos) throw InvalidInput("no '" + what + "' in the text; correct the test");
  return text.replace(at, what.size(), instead);
}

std::string example() { return test::trace_example(STOWAGE_ROOT); }

void expect_refused(const std::string& text, const std::string& message) {
  test::expect_refused([&] { graph_from_trace(text); }, message);
  test::expect_refused([&] { graph_from_trace(text); }, "docs/trace.md says what");
}

const Op& op_named(const Graph& graph, const std::string& name) {
  const auto found =
      std::find_if(graph.ops.begin(), graph.ops.end(), [&](const Op& op) { return op.name == name; });
  if (found == graph.ops.end()) throw InvalidInput("no op '" + name + "'; correct the test");
  return *found;
}

TEST(Trace, IsToldFromAGraphByItsFirstMember) {
  EXPECT_TRUE(is_trace(example()));
  EXPECT_TRUE(is_trace("\r\n { \"stowage_trace\""));
  EXPECT_FALSE(is_trace(to_json(test::small_graph())));
  for (const char* text :
       {"", "{", "[\"stowage_trace\"]", "\"stowage_trace\"", "{\"tensors\": \"stowage_trace\""})
    EXPECT_FALSE(is_trace(text)) << text;
}

TEST(Trace, MayBeginWithTheMarkOfUtf8) {
  const std::string marked = "\xef\xbb\xbf" + example();
  EXPECT_TRUE(is_trace(marked));
  EXPECT_EQ(graph_from_trace(marked), graph_from_trace(example()));
}

// A trace whose one forward op reads `inputs` inputs, and writes the loss.
std::string wide_trace(int inputs) {
  std::string text =
      "{\"stowage_trace\":1,\"loss\":\"loss\",\"optimizer\":{\"name\":\"adamw\"}}\n"
      "{\"tensor\":\"w\",\"kind\":\"parameter\",\"type\":\"f32\",\"shape\":[4]}\n"
      "{\"tensor\":\"g\",\"kind\":\"gradient\",\"type\":\"f32\",\"shape\":[4],\"of\":\"w\"}\n"
      "{\"tensor\":\"loss\",\"kind\":\"activation\",\"type\":\"f32\",\"shape\":[1]}\n";
  std::string reads = "\"w\"";
  for (int i = 0; i < inputs; ++i) {
    const std::string name = "\"x" + std::to_string(i) + '"';
    text += "{\"tensor\":" + name + ",\"kind\":\"input\",\"bytes\":4}\n";
    reads += ',' + name;
  }
  return text + "{\"op\":\"f\",\"phase\":\"forward\",\"reads\":[" + reads + "],\"writes\":[\"loss\"]}\n" +
         "{\"op\":\"b\",\"phase\":\"backward\",\"reads\":[\"w\",\"loss\"],\"writes\":[\"g\"]}\n";
}

TEST(Trace, NamesTheLimitOnAnOpsValues) {
  EXPECT_EQ(graph_from_trace(wide_trace(1023)).ops[0].reads.size(), 1024U);
  expect_refused(wide_trace(1024),
                 "op 'f' reads and writes 1025 inputs and activations, and planning takes at most 1024");
}

TEST(Trace, NamesAMemberThatStandsTwice) {
  expect_refused(with(example(), "\"kind\"", "\"kind\":\"input\",\"kind\""),
                 "\"kind\" stands twice in one object");
}

TEST(Trace, CutsAndSpellsOutNamesInMessages) {
  const std::string name = "\xc2\x9b" + std::string(4000, 'x');
  const std::string line = "{\"tensor\":\"" + name + "\",\"kind\":\"input\",\"bytes\":4}\n";
  const std::string text = "{\"stowage_trace\":1,\"loss\":\"l\",\"clip\":\"c\"}\n" + line + line;
  expect_refused(text, "names '\\u009b" + std::string(199, 'x') + "…', which line 2 names already");
}

// What GraphBuilder made, written as a trace and read back, all but what a trace leaves out.
TEST(Trace, OfAGraphWithItsUpdatePhaseReadsBackEqual) {
  Graph graph = test::small_graph();
  graph.ops[0].cost.seconds = 0.1;
  graph.ops[1].cost.seconds = 0;
  Graph back = graph_from_trace(test::trace_of(graph));
  for (Tensor& tensor : graph.tensors) tensor.initializer = {};
  for (Op& op : graph.ops) op.attributes.clear();
  EXPECT_EQ(back, graph);
}

Graph graph_of_version_2() {
  Graph graph = test::small_graph();
  for (Op& op : graph.ops) op.cost.type = DataType::bf16;
  graph.ops[0].replayable = false;
  graph.samples = 3;
  graph.tokens = 12;
  return graph;
}

TEST(Trace, OfVersion2KnowsTypesReplaysAndCounts) {
  Graph graph = graph_of_version_2();
  const Graph back = graph_from_trace(test::trace_of(graph, 2));
  for (Tensor& tensor : graph.tensors) tensor.initializer = {};
  for (Op& op : graph.ops) op.attributes.clear();
  EXPECT_EQ(back, graph);
  for (const char* member : {"'samples'", "'replayable'"}) {
    std::string text = test::trace_of(graph_of_version_2(), 1);
    if (member == std::string("'replayable'")) text = with(text, ",\"samples\":3,\"tokens\":12", "");
    expect_refused(text, member);
  }
}

// x (bf16) times w, whose casts `forward` and `backward` are as autocast makes them.
std::string autocast(const std::string& more = "") {
  return R"({"stowage_trace":2,"loss":"loss","optimizer":{"name":"adamw"}}
{"tensor":"x","kind":"input","type":"bf16","shape":[4,3]}
{"tensor":"w","kind":"parameter","type":"f32","shape":[3,3]}
{"tensor":"w.bf16","kind":"activation","type":"bf16","shape":[3,3]}
{"tensor":"loss","kind":"activation","type":"f32","shape":[]}
{"tensor":"dy","kind":"activation","type":"bf16","shape":[4,3]}
{"op":"to","phase":"forward","unit":"u","kernel":"cast","reads":["w"],"writes":["w.bf16"]}
)" + more +
         R"({"op":"f","phase":"forward","unit":"u","reads":["x","w.bf16"],"writes":["loss","dy"],"type":"bf16"}
{"tensor":"dw.bf16","kind":"activation","type":"bf16","shape":[3,3]}
{"tensor":"dw","kind":"gradient","of":"w","type":"f32","shape":[3,3]}
{"op":"b","phase":"backward","unit":"u","reads":["dy","x","w.bf16"],"writes":["dw.bf16"]}
{"op":"from","phase":"backward","unit":"u","kernel":"cast","reads":["dw.bf16"],"writes":["dw"]}
)";
}

TEST(Trace, TakesAWeightThatIsOnlyCastInTheTypeOfItsCast) {
  const Graph graph = graph_from_trace(autocast());
  const auto id = [&](const std::string& name) {
    for (TensorId each = 0; each < graph.tensors.size(); ++each)
      if (graph.tensors[each].name == name) return each;
    return no_id;
  };
  EXPECT_EQ(graph.tensor(id("w")).type, DataType::bf16);
  EXPECT_EQ(graph.tensor(id("dw.bf16")).kind, TensorKind::gradient);
  EXPECT_EQ(graph.tensor(id("w.low")).type, DataType::i16) << "what makes a master weight of it";
  EXPECT_EQ(graph.tensor(id("w.adam_m")).type, DataType::f32);
  for (const char* gone : {"w.bf16", "dw"}) EXPECT_EQ(id(gone), no_id) << gone;
  EXPECT_EQ(op_named(graph, "f").reads, (std::vector<TensorId>{id("x"), id("w")}));
  EXPECT_EQ(op_named(graph, "b").reads, (std::vector<TensorId>{id("dy"), id("x"), id("w")}));
  EXPECT_EQ(op_named(graph, "w.adamw").reads[1], id("dw.bf16"));
  for (const Op& op : graph.ops) EXPECT_NE(op.kernel, "cast");
}

TEST(Trace, LeavesAWeightInItsTypeThatOthersReadToo) {
  const std::string other =
      "{\"tensor\":\"y\",\"kind\":\"activation\",\"type\":\"f32\",\"shape\":[3]}\n"
      "{\"op\":\"norm\",\"phase\":\"forward\",\"reads\":[\"w\"],\"writes\":[\"y\"]}\n";
  const std::string of_version_1 =
      with(with(autocast(), "\"stowage_trace\":2", "\"stowage_trace\":1"),
           ",\"type\":\"bf16\"}\n{\"tensor\":\"dw.bf16", "}\n{\"tensor\":\"dw.bf16");
  for (const std::string& text :
       {autocast(other), of_version_1,
        with(autocast(), "\"kernel\":\"cast\",\"reads\":[\"w\"]", "\"reads\":[\"w\"]"),
        with(autocast(), "\"kernel\":\"cast\",\"reads\":[\"dw.bf16\"]", "\"reads\":[\"dw.bf16\"]")}) {
    const Graph graph = graph_from_trace(text);
    EXPECT_EQ(graph.tensors[1].name, "w");
    EXPECT_EQ(graph.tensors[1].type, DataType::f32);
    EXPECT_NO_THROW(op_named(graph, "to"));
  }
}

TEST(Trace, AForwardPassOfFrozenParametersIsAStep) {
  const Graph graph = graph_from_trace(
      "{\"stowage_trace\":2,\"loss\":\"loss\",\"optimizer\":{\"name\":\"adamw\"}}\n"
      "{\"tensor\":\"w\",\"kind\":\"parameter\",\"type\":\"f32\",\"shape\":[4],\"trained\":false}\n"
      "{\"tensor\":\"loss\",\"kind\":\"activation\",\"type\":\"f32\",\"shape\":[1]}\n"
      "{\"op\":\"f\",\"phase\":\"forward\",\"reads\":[\"w\"],\"writes\":[\"loss\"]}\n");
  ASSERT_EQ(graph.ops.size(), 2U);
  EXPECT_EQ(graph.ops[1].kernel, "clip");
  EXPECT_TRUE(graph.ops[1].reads.empty());
}

TEST(Trace, AFrozenParameterHasNoGradientAndNoState) {
  const std::string frozen =
      with(autocast(), "{\"tensor\":\"x\"",
           "{\"tensor\":\"v\",\"kind\":\"parameter\",\"bytes\":64,\"trained\":false}\n{\"tensor\":\"x\"");
  const std::string read = with(frozen, "[\"x\",\"w.bf16\"]", "[\"x\",\"w.bf16\",\"v\"]");
  const Graph graph = graph_from_trace(read);
  EXPECT_FALSE(graph.tensors[0].trained);
  for (const Tensor& tensor : graph.tensors) EXPECT_FALSE(tensor.name.starts_with("v.")) << tensor.name;
  expect_refused(with(read, "\"of\":\"w\"", "\"of\":\"v\""), "'of' names 'v', which is not trained");
  expect_refused(with(read, "\"kind\":\"input\"", "\"trained\":false,\"kind\":\"input\""),
                 "'trained' stands on a tensor of kind input");
  expect_refused(with(read, "\"kernel\":\"cast\",\"reads\":[\"dw.bf16\"]",
                      "\"replayable\":false,\"reads\":[\"dw.bf16\"]"),
                 "'replayable' is false of an op of backward");
}

// The same without its update phase: the reader's is GraphBuilder's.
TEST(Trace, OfForwardAndBackwardGetsTheUpdatePhaseOfGraphBuilder) {
  const AdamW optimizer{.beta1 = 0.8, .beta2 = 0.9, .epsilon = 1e-6, .weight_decay = 0.2, .clip = 3};
  for (const DataType type : {DataType::f32, DataType::bf16, DataType::f16}) {
    const auto build = [&](bool update) {
      GraphBuilder b(type);
      const Value x = b.input("x", {4, 3}, type);
      const Value loss = test::reduce(b, "loss", test::scale(b, "y", x, b.parameter("w", {3, 3}, {})));
      Graph graph = update ? b.finish(loss, optimizer) : b.finish_without_update(loss);
      for (Op& op : graph.ops)
        if (op.phase != Phase::update) op.attributes.clear();
      return graph;
    };
    Graph stub = build(false);
    stub.clip = stub.loss;  // trace_of writes one
    std::string text = with(test::trace_of(stub), "\"clip\":\"loss\"",
                            "\"optimizer\":{\"name\":\"adamw\",\"beta1\":0.8,\"beta2\":0.9,\"epsilon\":1e-6,"
                            "\"weight_decay\":0.2,\"clip\":3}");
    text = with(text, "\"w.grad\",", "\"w.grad\",\"of\":\"w\",");
    EXPECT_EQ(graph_from_trace(text), build(true));
  }
}

TEST(Trace, ExampleOfTheDocumentHoldsWhatItSays) {
  const Graph graph = graph_from_trace(example());
  EXPECT_EQ(graph.unit_names, (std::vector<std::string>{"up", "down"}));
  EXPECT_EQ(graph.ops.size(), 6U + 2 + 1 + 2);  // and square sums, clip, adamw
  EXPECT_EQ(graph.tensor(graph.loss).name, "loss");
  EXPECT_EQ(graph.tensor(graph.loss).type, DataType::f64);
  EXPECT_EQ(op_named(graph, "up").cost.seconds, 3.1e-5);
  EXPECT_EQ(op_named(graph, "up").kernel, "linear_relu");
  EXPECT_EQ(op_named(graph, "down").kernel, "traced");
  EXPECT_EQ(graph.tensor(op_named(graph, "down").writes[2]).bytes(), 65536U);
  EXPECT_EQ(op_named(graph, "up.relu").cost, (OpCost{0, 66560, {}}));
  EXPECT_EQ(op_named(graph, "up.relu").may_alias.size(), 1U);
  EXPECT_EQ(op_named(graph, "up.dw").cost.flops, 4194304);
}

TEST(Trace, MeasuredSecondsStandWhateverTheMachine) {
  const Graph graph = graph_from_trace(example());
  Machine machine;
  machine.launch_seconds = 1;
  machine.flops_per_second = 1;
  EXPECT_EQ(op_seconds(op_named(graph, "up"), machine), 3.1e-5);
  EXPECT_EQ(op_seconds(op_named(graph, "up.dw"), machine), 1 + 4194304.0);
  EXPECT_GT(host_seconds(op_named(graph, "w0.adamw"), machine), 0);
}

TEST(Trace, TakesUnitsAndTheirDefaults) {
  std::string text = example();
  for (const char* unit : {"\"unit\": \"up\", ", "\"unit\": \"down\", ", "\"unit\": \"down\", ",
                           "\"unit\": \"down\", ", "\"unit\": \"up\", ", "\"unit\": \"up\", "})
    text = with(text, unit, "");
  EXPECT_EQ(graph_from_trace(text).unit_names, (std::vector<std::string>{"step"}));
}

TEST(Trace, RoundsBytesUpToFour) {
  const Graph graph = graph_from_trace(with(example(), "\"bytes\": 1024", "\"bytes\": 1021"));
  EXPECT_EQ(graph.tensor(op_named(graph, "up").writes[1]).bytes(), 1024U);
}

struct Refused {
  const char* what;
  const char* instead;
  const char* message;
};

TEST(Trace, NamesLineAndFieldOfAHeaderThatDoesNotFit) {
  expect_refused("", "trace line 1: there is no header");
  expect_refused("\n \r\n", "trace line 1: there is no header");
  expect_refused("\n{}", "trace line 2: 'stowage_trace' is not there");
  expect_refused("[]", "trace line 1: 'stowage_trace' is not there");
  for (const Refused& r : std::initializer_list<Refused>{
           {"_trace\": 1", "_trace\": 3", "trace line 1: 'stowage_trace' is not 1 or 2"},
           {"_trace\": 1", "_trace\": 1e999", "trace line 1: "},
           {"\"loss\": \"loss\"", "\"loss\": \"l\"",
            "trace line 1: 'loss' names 'l', which no line describes"},
           {"\"loss\": \"loss\"", "\"loss\": \"h\"",
            "trace line 5: 'h' is the loss, but no activation of one element"},
           {"\"loss\": \"loss\"", "\"lost\": \"loss\"", "trace line 1: 'lost' is not a known field"},
           {"\"loss\": \"loss\", ", "", "trace line 1: 'loss' is not there"},
           {"\"adamw\"", "\"sgd\"", "trace line 1: 'optimizer.name' is not 'adamw'"},
           {"\"clip\": 1.0", "\"clip\": -1.0",
            "trace line 1: 'optimizer.clip' is not a number from 0 to 1e+06"},
           {"\"note\"", "\"clip\": \"x\", \"note\"", "trace line 1: 'clip' stands beside 'optimizer'"},
           {"\"optimizer\": {\"name\": \"adamw\", \"clip\": 1.0}, ", "",
            "trace line 1: 'the line' has neither 'optimizer' nor"},
           {"\"two layers, batch 8\"", "[]", "trace line 1: 'note' is not a string"}})
    expect_refused(with(example(), r.what, r.instead), r.message);
}

TEST(Trace, NamesLineAndFieldOfATensorThatDoesNotFit) {
  for (const Refused& r : std::initializer_list<Refused>{
           {"\"tensor\": \"x\"", "\"tensor\": \"\"",
            "trace line 2: 'tensor' is not a name of 1 to 4096 bytes"},
           {"\"tensor\": \"x\"", "\"tensor\": \"\\u001b[2J\"", "trace line 2: 'tensor' is not a name"},
           {"\"tensor\": \"w1\"", "\"tensor\": \"w0\"",
            "trace line 4: 'tensor' names 'w0', which line 3 names already"},
           {"\"kind\": \"input\"", "\"kind\": \"output\"", "trace line 2: 'kind' is not a known word"},
           {"\"type\": \"f32\"", "\"type\": \"f8\"", "trace line 2: 'type' is not a known word"},
           {"[8, 256]", "[8, 0]", "trace line 2: 'shape' is not of dimensions from 1 up"},
           {"[8, 256]", "[8, -256]", "trace line 2: 'shape' is not of dimensions from 1 up"},
           {"[8, 256]", "[4294967296, 4294967296]", "trace line 2: 'shape' is not of dimensions from 1 up"},
           {"[8, 256]", "[8, 1e3]", "trace line 2: 'shape[1]' is not an integer"},
           {"[8, 256]", "[288230376151711743]", "brings the bytes of all tensors above 2^60"},
           {"\"bytes\": 1024", "\"bytes\": 0", "trace line 6: 'bytes' is not a number of bytes from 1"},
           {"\"bytes\": 1024", "\"bytes\": 1152921504606846977",
            "trace line 6: 'bytes' is not a number of bytes"},
           {"\"bytes\": 1024", "\"bytes\": 4, \"shape\": [1]", "trace line 6: 'shape' stands beside 'bytes'"},
           {"\"type\": \"f32\", \"shape\": [256, 1024]", "\"bytes\": 4",
            "trace line 3: 'bytes' says nothing that AdamW"},
           {"\"of\": \"w1\"", "\"of\": \"w2\"",
            "trace line 11: 'of' names 'w2', which no line above describes"},
           {"\"of\": \"w1\"", "\"of\": \"h\"", "trace line 11: 'of' names 'h', which is of kind activation"},
           {"\"of\": \"w0\"", "\"of\": \"w1\"",
            "trace line 17: 'of' names 'w1', whose final gradient stands in line 11"},
           {", \"of\": \"w0\"", "", "trace line 3: no gradient is 'of' the parameter 'w0'"},
           {"\"kind\": \"gradient\"", "\"kind\": \"activation\"",
            "trace line 11: 'of' stands on a tensor of kind activation"},
           {"\"mask\", \"kind\"", "\"mask\", \"color\": 1, \"kind\"",
            "trace line 6: 'color' is not a known field"},
           {", \"mask\"], \"seconds", "], \"seconds",
            "trace line 16: 'reads[1]' names 'mask', which no op above writes"},
           {"\"tensor\": \"h\"",
            "\"tensor\": \"unused\", \"kind\": \"activation\", \"bytes\": 4}\n{\"tensor\": \"h\"",
            "trace line 5: no op writes 'unused'"}})
    expect_refused(with(example(), r.what, r.instead), r.message);
}

TEST(Trace, NamesLineAndFieldOfAnOpThatDoesNotFit) {
  for (const Refused& r : std::initializer_list<Refused>{
           {"\"op\": \"down\"", "\"op\": \"up\"",
            "trace line 10: 'op' names 'up', which is an op above already"},
           {"{\"op\": \"down\"", "{\"node\": \"down\"",
            "trace line 10: 'the line' is not an object with 'tensor' or 'op'"},
           {"\"phase\": \"forward\"", "\"phase\": \"backward\"",
            "trace line 7: 'unit' names 'up', which has no forward op"},
           {"\"phase\": \"backward\"", "\"phase\": \"update\"",
            "trace line 12: 'phase' is update, but the header"},
           {"\"down.dx\", \"phase\": \"backward\"", "\"down.dx\", \"phase\": \"forward\"",
            "trace line 14: 'phase' is forward behind ops of backward"},
           {"\"down.dw\", \"phase\": \"backward\", \"unit\": \"down\"",
            "\"down.dw\", \"phase\": \"backward\", \"unit\": \"up\"",
            "trace line 14: 'unit' is 'down' behind 'up'"},
           {"\"reads\": [\"x\", \"w0\"]", "\"reads\": [\"x\", \"w9\"]",
            "trace line 7: 'reads[1]' names 'w9', which no line above describes"},
           {"\"reads\": [\"x\", \"w0\"]", "\"reads\": [\"x\", \"h\"]",
            "trace line 7: 'reads[1]' names 'h', which no op above writes"},
           {"\"writes\": [\"dw1\"]", "\"writes\": [\"dw1\", \"h\"]",
            "trace line 12: 'writes[1]' names 'h', which is written above"},
           {"\"writes\": [\"dw1\"]", "\"writes\": [\"dw1\", \"x\"]",
            "trace line 12: 'writes[1]' names the input 'x'"},
           {"\"writes\": [\"dw1\"]", "\"writes\": [\"dw1\", \"w1\"]",
            "trace line 12: 'writes[1]' names 'w1' of kind parameter"},
           {"\"reads\": [\"x\", \"w0\"]", "\"reads\": \"x\"", "trace line 7: 'reads' is not a list"},
           {"3.1e-5", "-3.1e-5", "trace line 7: 'seconds' is not a number from 0 to 1e+06"},
           {"3.1e-5", "NaN", "trace line 7: "},
           {"3.1e-5", "1e999", "trace line 7: "},
           {"3.1e-5", "1e300", "trace line 7: 'seconds' is not a number from 0 to 1e+06"},
           {"3.1e-5", "\"fast\"", "trace line 7: 'seconds' is not a finite number"},
           {"\"bytes\": 66560", "\"bytes\": -1", "trace line 16: 'bytes' is not a number from 0 to 1e+24"},
           {"\"flops\": 4194304", "\"flops\": 1e25",
            "trace line 18: 'flops' is not a number from 0 to 1e+24"},
           {"\"workspace\": 65536", "\"workspace\": 0",
            "trace line 10: 'workspace' is not a number of bytes"},
           {"[\"dz\", \"dh\"]", "[\"dz\", \"mask\"]",
            "trace line 16: 'may_alias[0]' is not a pair of tensors of the same size"},
           {"[\"dz\", \"dh\"]", "[\"dz\", \"h\"]",
            "trace line 16: 'may_alias[0][1]' is not an operand of this op"},
           {"[\"dz\", \"dh\"]", "[\"dz\"]", "trace line 16: 'may_alias[0]' is not a pair"},
           {"\"reads\": [\"dz\", \"x\"]", "\"reads\": [\"dz\", \"x\", \"dh\"]",
            "op 'up.relu' may overwrite 'dh' but is not its last reader"}})
    expect_refused(with(example(), r.what, r.instead), r.message);
}

TEST(Trace, RefusesForwardOpsOfAUnitThatDoNotFollowOneAnother) {
  expect_refused(
      with(example(), "{\"tensor\": \"dw1\"",
           "{\"tensor\": \"z\", \"kind\": \"activation\", \"bytes\": 4}\n"
           "{\"op\": \"z\", \"phase\": \"forward\", \"unit\": \"up\", \"reads\": [], \"writes\": [\"z\"]}\n"
           "{\"tensor\": \"dw1\""),
      "trace line 12: 'unit' is 'up' again");
}

TEST(Trace, RefusesWhatOnlyUpdateOpsMayDo) {
  const std::string text = test::trace_of(test::small_graph());
  expect_refused(with(text, "\"phase\":\"update\",", "\"phase\":\"update\",\"unit\":\"one\","),
                 "'unit' stands on an update op");
  expect_refused(with(text, "\"reads\":[\"x\",\"first\"]", "\"reads\":[\"x\",\"first.adam_m\"]"),
                 "'reads[1]' names the optimizer state 'first.adam_m'");
  expect_refused(with(text, "\"clip\":\"clip\"", "\"clip\":\"loss\""), "the clip 'loss' is f64 []");
}

TEST(Trace, SurvivesEveryTruncation) {
  const std::string text = example();
  for (std::size_t length = 0; length + 2 < text.size(); ++length)
    EXPECT_THROW(graph_from_trace(std::string_view(text).substr(0, length)), InvalidInput) << length;
}

TEST(Trace, RefusesLinesAndTextsThatAreTooLong) {
  const std::string header = example().substr(0, example().find('\n') + 1);
  expect_refused(header + "{\"tensor\": \"" + std::string(1 << 20, 'a') + "\"}",
                 "trace line 2: has more than 1048576");
  expect_refused(header + std::string(100'000, '['), "trace line 2: ");
  test::expect_refused(
      [&] { graph_from_trace(header + std::string((1 << 24) + 1, '\n')); },
      "trace line 16777217: there are more than 16777216 lines; record one step, in fewer ops");
}

}  // namespace
}  // namespace stowage
