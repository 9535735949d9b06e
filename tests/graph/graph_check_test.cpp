// One test for each way to break a graph's contract.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "stowage/graph.h"
#include "tests/support/expect_refused.h"
#include "tests/support/graph_queries.h"
#include "tests/support/small_graph.h"

namespace stowage {
namespace {

using test::tensor_named;

Op& op_named(Graph& graph, const std::string& name) { return graph.ops[test::op_named(graph, name)]; }

struct Breach {
  const char* name;
  const char* message;
  std::function<void(Graph&)> make;
};

class GraphBreach : public testing::TestWithParam<Breach> {};

TEST(GraphCheck, AcceptsTheUnbrokenGraph) { EXPECT_NO_THROW(check(test::small_graph())); }

TEST(GraphCheck, AcceptsAGraphWithoutOps) { EXPECT_NO_THROW(check(Graph{})); }

TEST_P(GraphBreach, IsRejected) {
  Graph graph = test::small_graph();
  GetParam().make(graph);
  test::expect_refused([&] { check(graph); }, GetParam().message);
}

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();

const Breach breaches[] = {
    {"TensorWithoutName", "a tensor has no name", [](Graph& g) { g.tensors[1].name.clear(); }},
    {"TwoTensorsOfOneName", "two tensors are named 'x'", [](Graph& g) { g.tensors[1].name = "x"; }},
    {"DimensionZero", "the shape [4, 0] of tensor 'x'",
     [](Graph& g) {
       g.tensors[0].shape = {4, 0};
     }},
    {"DimensionNegative", "the shape [-1] of tensor 'x'", [](Graph& g) { g.tensors[0].shape = {-1}; }},
    {"ShapeOverflows", "overflows 63 bits",
     [](Graph& g) {
       g.tensors[0].shape = {std::int64_t{1} << 31, std::int64_t{1} << 31};
     }},
    {"TotalOverflows", "sizes of all tensors up to 'first'",
     [](Graph& g) {
       g.tensors[0].shape = {std::int64_t{1} << 60};
       g.tensors[1].shape = {std::int64_t{1} << 60};
     }},
    {"InitializerNotFinite", "initializer of tensor 'first'",
     [](Graph& g) { g.tensors[1].initializer.standard_deviation = infinity; }},
    {"NotTrainedButNoParameter", "'x' is not trained, but no parameter either",
     [](Graph& g) { g.tensors[0].trained = false; }},
    {"UpdateOfWhatIsNotTrained", "writes 'first', which is not trained",
     [](Graph& g) { g.tensors[1].trained = false; }},
    {"NotReplayableInBackward", "is not replayable, but of backward",
     [](Graph& g) {
       for (Op& op : g.ops) op.replayable = op.phase != Phase::backward;
     }},
    {"TokensNegative", "a negative number of samples or tokens", [](Graph& g) { g.tokens = -1; }},
    {"TwoUnitsOfOneName", "two units are named 'one'", [](Graph& g) { g.unit_names[1] = "one"; }},
    {"OpWithoutName", "op 1 has no name", [](Graph& g) { g.ops[1].name.clear(); }},
    {"TwoOpsOfOneName", "two ops are named 'y1'", [](Graph& g) { g.ops[1].name = "y1"; }},
    {"OpWithoutKernel", "op 'y2' has no kernel", [](Graph& g) { g.ops[1].kernel.clear(); }},
    {"PhasesOutOfOrder", "op 'y2' of phase forward stands behind 'y1' of phase backward",
     [](Graph& g) { g.ops[0].phase = Phase::backward; }},
    {"UpdateOpWithUnit", "update op 'clip' has a unit", [](Graph& g) { op_named(g, "clip").unit = 0; }},
    {"UnitOutOfRange", "unit of op 'y2' is out of range", [](Graph& g) { g.ops[1].unit = 2; }},
    {"NoUnit", "unit of op 'y2' is out of range", [](Graph& g) { g.ops[1].unit = no_id; }},
    {"FirstUnitIsNotZero", "units are not consecutive: forward op 'y1'", [](Graph& g) { g.ops[0].unit = 1; }},
    {"ForwardUnitTwice", "units are not consecutive: forward op 'y3'", [](Graph& g) { g.ops[2].unit = 0; }},
    {"ForwardUnitSkipped", "units are not consecutive: forward op 'y2'",
     [](Graph& g) {
       g.unit_names.push_back("three");
       for (Op& op : g.ops) {
         if (op.unit == 1) op.unit = 2;
       }
     }},
    {"BackwardUnitTwice", "units are not consecutive: backward op 'y3.backward_parameter'",
     [](Graph& g) { op_named(g, "loss.backward").unit = 0; }},
    {"FlopsNegative", "cost of op 'y1'", [](Graph& g) { g.ops[0].cost.flops = -1; }},
    {"FlopsNotANumber", "cost of op 'y1'", [](Graph& g) { g.ops[0].cost.flops = nan; }},
    {"BytesNotFinite", "cost of op 'y1'", [](Graph& g) { g.ops[0].cost.bytes = infinity; }},
    {"SecondsNotFinite", "cost of op 'y1'", [](Graph& g) { g.ops[0].cost.seconds = infinity; }},
    {"SecondsNegative", "cost of op 'y1'", [](Graph& g) { g.ops[0].cost.seconds = -1; }},
    {"AttributeNotANumber", "attribute 'by' of op 'y1'", [](Graph& g) { g.ops[0].attributes["by"] = nan; }},
    {"ReadOutOfRange", "op 'y1' reads tensor 4000", [](Graph& g) { g.ops[0].reads[0] = 4000; }},
    {"WriteOutOfRange", "op 'y1' writes tensor 4294967295", [](Graph& g) { g.ops[0].writes[0] = no_id; }},
    {"ReadOfAWorkspace", "op 'loss.backward' reads the workspace",
     [](Graph& g) { op_named(g, "loss.backward").reads[0] = tensor_named(g, "loss.scratch"); }},
    {"StateReadOutsideUpdate", "op 'y1' is no update but reads the optimizer state",
     [](Graph& g) { g.ops[0].reads[0] = tensor_named(g, "first.adam_m"); }},
    {"ReadBeforeWrite", "op 'y1' reads 'y2' before it is written",
     [](Graph& g) { g.ops[0].reads[0] = tensor_named(g, "y2"); }},
    {"OpsSwapped", "op 'y3' reads 'y2' before it is written",
     [](Graph& g) { std::swap(g.ops[1], g.ops[2]); }},
    {"WriteOfAnInput", "op 'y1' writes the input 'x'",
     [](Graph& g) { g.ops[0].writes[0] = tensor_named(g, "x"); }},
    {"ParameterWrittenOutsideUpdate", "op 'y1' is no update but writes the parameter 'first'",
     [](Graph& g) { g.ops[0].writes.push_back(tensor_named(g, "first")); }},
    {"StateWrittenOutsideUpdate", "op 'y1' is no update but writes the optimizer_state 'first.adam_v'",
     [](Graph& g) { g.ops[0].writes.push_back(tensor_named(g, "first.adam_v")); }},
    {"TwoProducers", "'y1' is written twice, by op 'y1' and by op 'y2'",
     [](Graph& g) { g.ops[1].writes.push_back(tensor_named(g, "y1")); }},
    {"ActivationUpdatedInPlace", "'y1' is written twice, by op 'y1' and by op 'y2'",
     [](Graph& g) { g.ops[1].writes.push_back(g.ops[1].reads[0]); }},
    {"ParameterUpdatedTwice", "'first' is written twice",
     [](Graph& g) { op_named(g, "second.adamw").writes[0] = tensor_named(g, "first"); }},
    {"NoProducer", "no op writes the activation 'orphan'",
     [](Graph& g) {
       g.tensors.push_back({"orphan", DataType::f32, {1}, TensorKind::activation, {}});
     }},
    {"WorkspaceOfNoOp", "no op writes the workspace 'loss.scratch'",
     [](Graph& g) { op_named(g, "loss").writes.pop_back(); }},
    {"AliasOfNoWrite", "an alias of op 'y3.backward' names an operand",
     [](Graph& g) { op_named(g, "y3.backward").may_alias[0].write = 1; }},
    {"AliasOfNoRead", "an alias of op 'y3.backward' names an operand",
     [](Graph& g) { op_named(g, "y3.backward").may_alias[0].read = 2; }},
    {"AliasTwice", "two aliases of op 'y3.backward' name the same operand",
     [](Graph& g) {
       op_named(g, "y3.backward").may_alias.push_back({0, 0});
     }},
    {"AliasOfTwoSizes", "whose size differs",
     [](Graph& g) {
       op_named(g, "y3.backward_parameter").may_alias.push_back({0, 1});
     }},
    {"AliasOfAParameter", "only values of one step may share bytes",
     [](Graph& g) {
       g.tensors[tensor_named(g, "first")].shape = {4, 3};
       op_named(g, "y3.backward").may_alias[0].read = 1;
     }},
    {"AliasOfAnInput", "only values of one step may share bytes",
     [](Graph& g) {
       op_named(g, "y2.backward").reads.push_back(tensor_named(g, "x"));
       op_named(g, "y2.backward").may_alias[0].read = 2;
     }},
    {"AliasOfItself", "op 'clip' aliases 'first.adam_m' with itself",
     [](Graph& g) {
       Op& clip = op_named(g, "clip");
       clip.reads.push_back(tensor_named(g, "first.adam_m"));
       clip.writes.push_back(clip.reads.back());
       op_named(g, "first.adamw").writes[1] = op_named(g, "first.adamw").writes[0];
       op_named(g, "first.adamw").writes.erase(op_named(g, "first.adamw").writes.begin());
       clip.may_alias.push_back({1, static_cast<std::uint32_t>(clip.reads.size() - 1)});
     }},
    {"AliasReadLater", "op 'y3.backward' may overwrite 'y3.grad' but is not its last reader: op 'clip'",
     [](Graph& g) { op_named(g, "clip").reads.push_back(tensor_named(g, "y3.grad")); }},
    {"AliasReadTwiceByTheOp", "op 'y3.backward' may overwrite 'y3.grad' but is not its last reader",
     [](Graph& g) { op_named(g, "y3.backward").reads.push_back(tensor_named(g, "y3.grad")); }},
    {"LossOutOfRange", "the loss tensor does not exist", [](Graph& g) { g.loss = 4000; }},
    {"LossNotAScalar", "the loss 'y1' is f32 [4, 3], not f64 []",
     [](Graph& g) { g.loss = tensor_named(g, "y1"); }},
    {"LossOfUpdate", "the loss 'clip' is written by an update op",
     [](Graph& g) {
       g.loss = g.clip;
       g.tensors[g.loss].shape = {};
     }},
    {"NoMicroBatch", "2 units are no half-blocks of 0 micro-batches each",
     [](Graph& g) { g.micro_batches = 0; }},
    {"HalfBlockWithoutAMicroBatch", "2 units are no half-blocks of 3 micro-batches each",
     [](Graph& g) { g.micro_batches = 3; }},
    {"NoGradientGroup", "0 gradient groups are no power of two that divides 1 micro-batches",
     [](Graph& g) { g.gradient_groups = 0; }},
    {"GradientGroupsThatDoNotDivide", "2 gradient groups are no power of two that divides 1 micro-batches",
     [](Graph& g) { g.gradient_groups = 2; }},
    {"RangesOfOneMicroBatch", "a range begins at half-block 1 of 2, behind 0, with 1 micro-batches",
     [](Graph& g) { g.range_begins = {1}; }},
    {"BackwardMicroBatchesFromTheLast",
     "units are not consecutive: backward op 'y1.backward_parameter' has unit 0",
     [](Graph& g) { g.micro_batches = 2; }},
    {"ClipNotAPair", "the clip 'loss' is f64 [], not f64 [2]", [](Graph& g) { g.clip = g.loss; }},
    {"ClipNotOfUpdate", "the clip 'loss' is not written by an update op",
     [](Graph& g) {
       g.tensors[g.loss].shape = {2};
       g.clip = g.loss;
       g.loss = no_id;
     }},
};

INSTANTIATE_TEST_SUITE_P(Each, GraphBreach, testing::ValuesIn(breaches),
                         [](const testing::TestParamInfo<Breach>& info) { return info.param.name; });

}  // namespace
}  // namespace stowage
