#include "stowage/graph_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/expect_refused.h"
#include "tests/support/graph_queries.h"
#include "tests/support/small_graph.h"

namespace stowage {
namespace {

using test::expect_refused;
using test::op_names;
using test::tensor_names;
using testing::ElementsAre;
using testing::IsEmpty;

const Op& op_of(const Graph& graph, const std::string& name) { return graph.op(test::op_named(graph, name)); }

// y = a + b: both take dy as it is.
Value sum(GraphBuilder& builder, const std::string& name, Value a, Value b) {
  Value y = builder.activation(name, builder.tensor(a).shape);
  builder.op({name, "sum", {}, {a, b}, {y}, {}, {}},
             [=](GraphBuilder& g, const std::vector<Value>& gradients) {
               g.add_gradient(a, gradients[0], false);
               g.add_gradient(b, gradients[0], false);
             });
  return y;
}

struct Start {
  GraphBuilder b;
  Value p = b.parameter("p", {4, 3}, {});
  Value x = b.input("x", {4, 3}, DataType::f32);
};

TEST(GraphBuilder, EmitsForwardBackwardUpdate) {
  EXPECT_THAT(op_names(test::small_graph()),
              ElementsAre("y1", "y2", "y3", "loss",                                          //
                          "loss.backward", "y3.backward_parameter", "y3.backward",           //
                          "y2.backward_parameter", "second.grad.square_sum", "y2.backward",  //
                          "y1.backward_parameter", "first.grad.2.accumulate", "first.grad.square_sum", "clip",
                          "first.adamw", "second.adamw"));
}

TEST(GraphBuilder, OpsBelongToTheirPhaseAndUnit) {
  Graph graph = test::small_graph();
  EXPECT_THAT(graph.unit_names, ElementsAre("one", "two"));
  for (const Op& op : graph.ops) {
    bool forward = op.name == "y1" || op.name == "y2" || op.name == "y3" || op.name == "loss";
    bool update = op.kernel == "clip" || op.kernel == "adamw";
    EXPECT_EQ(op.phase, forward ? Phase::forward : update ? Phase::update : Phase::backward) << op.name;
    bool first = op.name.starts_with("y1") || op.name.starts_with("first.grad");
    EXPECT_EQ(op.unit, update ? no_id : first ? 0U : 1U) << op.name;
  }
}

TEST(GraphBuilder, TheSquareSumFollowsTheOpThatCompletesTheGradient) {
  Graph graph = test::small_graph();
  const Op& op = op_of(graph, "first.grad.square_sum");
  EXPECT_EQ(op.kernel, "square_sum");
  EXPECT_THAT(tensor_names(graph, op.reads), ElementsAre("first.grad.2"));
  const Tensor& scalar = graph.tensor(op.writes[0]);
  EXPECT_EQ(scalar, (Tensor{"first.grad.square_sum", DataType::f64, {}, TensorKind::activation, {}}));
}

TEST(GraphBuilder, PartsOfAParametersGradientAreGradients) {
  Graph graph = test::small_graph();
  const Op& op = op_of(graph, "first.grad.2.accumulate");
  EXPECT_EQ(op.kernel, "accumulate");
  EXPECT_THAT(tensor_names(graph, op.reads), ElementsAre("first.grad", "first.grad.1"));
  for (TensorId id : {op.reads[0], op.reads[1], op.writes[0]}) {
    EXPECT_EQ(graph.tensor(id).kind, TensorKind::gradient);
    EXPECT_EQ(graph.tensor(id).shape, (std::vector<std::int64_t>{3, 3}));
  }
  EXPECT_EQ(graph.tensor(op_of(graph, "y2.backward").writes[0]).kind, TensorKind::activation);
}

TEST(GraphBuilder, UpdatesStandInOrderOfFirstUse) {
  GraphBuilder b;
  Value late = b.parameter("late", {4, 3}, {});
  Value early = b.parameter("early", {3}, {});
  Value x = b.input("x", {4, 3}, DataType::f32);
  Value y = test::scale(b, "b", test::scale(b, "a", x, early), late);
  AdamW optimizer{.beta1 = 0.8, .beta2 = 0.99, .epsilon = 1e-6, .weight_decay = 0.3, .clip = 2};
  Graph graph = b.finish(test::reduce(b, "loss", y), optimizer);

  const Op& clip = op_of(graph, "clip");
  EXPECT_EQ(clip.kernel, "clip");
  EXPECT_EQ(clip.attributes, (Attributes{{"clip", 2.0}}));
  EXPECT_THAT(tensor_names(graph, clip.reads), ElementsAre("early.grad.square_sum", "late.grad.square_sum"));
  EXPECT_THAT(clip.writes, ElementsAre(graph.clip));
  EXPECT_EQ(graph.tensor(graph.clip), (Tensor{"clip", DataType::f64, {2}, TensorKind::activation, {}}));

  const Op& first = graph.ops[graph.ops.size() - 2];
  const Op& second = graph.ops.back();
  EXPECT_EQ(first.kernel, "adamw");
  EXPECT_THAT(tensor_names(graph, first.reads),
              ElementsAre("early", "early.grad", "early.adam_m", "early.adam_v", "clip"));
  EXPECT_THAT(tensor_names(graph, first.writes), ElementsAre("early", "early.adam_m", "early.adam_v"));
  EXPECT_EQ(first.attributes,
            (Attributes{{"beta1", 0.8}, {"beta2", 0.99}, {"epsilon", 1e-6}, {"weight_decay", 0.0}}));
  EXPECT_THAT(tensor_names(graph, second.writes), ElementsAre("late", "late.adam_m", "late.adam_v"));
  EXPECT_EQ(second.attributes,
            (Attributes{{"beta1", 0.8}, {"beta2", 0.99}, {"epsilon", 1e-6}, {"weight_decay", 0.3}}));
  EXPECT_EQ(graph.tensor(second.writes[1]),
            (Tensor{"late.adam_m", DataType::f32, {4, 3}, TensorKind::optimizer_state, {}}));
}

TEST(GraphBuilder, AllParametersDecayOnDemand) {
  for (const auto& [decayed, of_vector] :
       {std::pair{DecayedParameters::matrices, 0.0}, {DecayedParameters::all, 0.3}}) {
    GraphBuilder b;
    Value gain = b.parameter("gain", {3}, {});
    Value weight = b.parameter("weight", {4, 3}, {});
    Value x = b.input("x", {4, 3}, DataType::f32);
    Value y = test::scale(b, "b", test::scale(b, "a", x, gain), weight);
    Graph graph = b.finish(test::reduce(b, "loss", y), {.weight_decay = 0.3, .decayed = decayed});
    EXPECT_EQ(std::get<double>(op_of(graph, "gain.adamw").attributes.at("weight_decay")), of_vector);
    EXPECT_EQ(std::get<double>(op_of(graph, "weight.adamw").attributes.at("weight_decay")), 0.3);
  }
  EXPECT_EQ(to_string(DecayedParameters::matrices), "matrices");
  EXPECT_EQ(to_string(DecayedParameters::all), "all");
}

TEST(GraphBuilder, OptimizerStateHasTheWorkType) {
  GraphBuilder b(DataType::f64);
  Value p = b.parameter("p", {4, 3}, {});
  Graph graph =
      b.finish(test::reduce(b, "loss", test::scale(b, "y", b.input("x", {4, 3}, DataType::f64), p)), {});
  for (TensorId id : op_of(graph, "p.adamw").reads) EXPECT_EQ(graph.tensor(id).type, DataType::f64);
}

TEST(GraphBuilder, InputsGetNoGradient) {
  Start s;
  Value y = test::scale(s.b, "y", s.x, s.p);
  Value z = test::scale(s.b, "z", s.x, s.x);
  EXPECT_TRUE(s.b.wants_gradient(s.p));
  EXPECT_TRUE(s.b.wants_gradient(y));
  EXPECT_FALSE(s.b.wants_gradient(s.x));
  EXPECT_FALSE(s.b.wants_gradient(z));
  EXPECT_FALSE(s.b.wants_gradient({}));
  Graph graph = s.b.finish_without_update(test::reduce(s.b, "loss", y));
  EXPECT_THAT(op_names(graph), ElementsAre("y", "z", "loss", "loss.backward", "y.backward_parameter"));
  EXPECT_EQ(s.b.gradient_of(s.x), no_id);
  EXPECT_EQ(graph.tensor(s.b.gradient_of(s.p)).name, "p.grad");
  EXPECT_EQ(graph.clip, no_id);
}

// Three uses: contributions arrive from the last use to the first, and the running sum is reused.
TEST(GraphBuilder, ContributionsAreSummedInOrderOfArrival) {
  Start s;
  Value y = test::scale(s.b, "y", s.x, s.p);
  Value one = test::scale(s.b, "one", y, s.x);
  Value two = test::scale(s.b, "two", y, s.x);
  Value three = test::scale(s.b, "three", y, s.x);
  Value loss = test::reduce(s.b, "loss", sum(s.b, "s2", sum(s.b, "s1", one, two), three));
  Graph graph = s.b.finish_without_update(loss);
  EXPECT_THAT(op_names(graph), ElementsAre("y", "one", "two", "three", "s1", "s2", "loss", "loss.backward",
                                           "three.backward", "two.backward", "y.grad.2.accumulate",
                                           "one.backward", "y.grad.4.accumulate", "y.backward_parameter"));
  const Op& first = op_of(graph, "y.grad.2.accumulate");
  EXPECT_THAT(tensor_names(graph, first.reads), ElementsAre("y.grad", "y.grad.1"));
  EXPECT_THAT(first.may_alias, ElementsAre(Alias{0, 0}));
  const Op& second = op_of(graph, "y.grad.4.accumulate");
  EXPECT_THAT(tensor_names(graph, second.reads), ElementsAre("y.grad.2", "y.grad.3"));
  EXPECT_THAT(second.may_alias, ElementsAre(Alias{0, 0}));
}

// A trunk and a branch: the branch's own gradient is overwritten, the one passed through is not.
TEST(GraphBuilder, AddsInPlaceOnTheFreshContribution) {
  Start s;
  Value trunk = test::scale(s.b, "trunk", s.x, s.p);
  Value branch = test::scale(s.b, "branch", trunk, s.x);
  Value y = sum(s.b, "y", trunk, branch);
  Graph graph = s.b.finish_without_update(test::reduce(s.b, "loss", y));
  EXPECT_THAT(op_of(graph, "branch.backward").may_alias, IsEmpty());
  const Op& op = op_of(graph, "trunk.grad.1.accumulate");
  EXPECT_THAT(tensor_names(graph, op.reads), ElementsAre("trunk.grad", "y.grad"));
  EXPECT_THAT(op.may_alias, ElementsAre(Alias{0, 0}));
  EXPECT_EQ(s.b.gradient_of(trunk), op.writes[0]);
}

// As above, by an op that adds what the trunk has given to its own gradient: a third user adds to their sum.
TEST(GraphBuilder, AnOpMayAddTheGradientSoFarItself) {
  Start s;
  Value trunk = test::scale(s.b, "trunk", s.x, s.p);
  Value third = test::scale(s.b, "third", trunk, s.x);
  Value branch = s.b.activation("branch", {4, 3});
  s.b.op({"branch", "adding", {}, {trunk}, {branch}, {}, {}},
         [=](GraphBuilder& b, const std::vector<Value>& gradients) {
           const Value before = b.gradient_so_far(trunk);
           Value dx = b.gradient_like(trunk);
           b.op({"branch.backward", "adding_backward", {}, {gradients[0], before}, {dx}, {}, {}});
           b.set_gradient(trunk, dx);
         });
  EXPECT_FALSE(s.b.gradient_so_far(trunk));
  Graph graph = s.b.finish_without_update(
      test::reduce(s.b, "loss", sum(s.b, "z", third, sum(s.b, "y", trunk, branch))));
  EXPECT_THAT(tensor_names(graph, op_of(graph, "branch.backward").reads), ElementsAre("z.grad", "z.grad"));
  EXPECT_THAT(tensor_names(graph, op_of(graph, "branch.backward").writes), ElementsAre("trunk.grad"));
  const Op& op = op_of(graph, "trunk.grad.2.accumulate");
  EXPECT_THAT(tensor_names(graph, op.reads), ElementsAre("trunk.grad", "trunk.grad.1"));
  EXPECT_THAT(op.may_alias, ElementsAre(Alias{0, 0}));
}

TEST(GraphBuilder, AddsIntoANewTensorWhereNoContributionIsFresh) {
  Start s;
  Value y = test::scale(s.b, "y", s.x, s.p);
  Graph graph = s.b.finish_without_update(test::reduce(s.b, "loss", sum(s.b, "twice", y, y)));
  const Op& op = op_of(graph, "y.grad.accumulate");
  EXPECT_THAT(tensor_names(graph, op.reads), ElementsAre("twice.grad", "twice.grad"));
  EXPECT_THAT(op.may_alias, IsEmpty());
}

TEST(GraphBuilder, OverwritesAFreshGradientOfOneReader) {
  Start s;
  Value y = test::scale(s.b, "z", test::scale(s.b, "y", s.x, s.p), s.x);
  Graph graph = s.b.finish_without_update(test::reduce(s.b, "loss", y));
  EXPECT_THAT(op_of(graph, "z.backward").may_alias, ElementsAre(Alias{0, 0}));
  EXPECT_FALSE(s.b.may_overwrite(y));
}

TEST(GraphBuilder, APassedThroughGradientOfAParameterIsAGradient) {
  Start s;
  Value y = sum(s.b, "y", s.p, test::scale(s.b, "x_p", s.x, s.b.parameter("q", {3}, {})));
  Graph graph = s.b.finish(test::reduce(s.b, "loss", y), {});
  const Tensor& gradient = graph.tensor(s.b.gradient_of(s.p));
  EXPECT_EQ(gradient.name, "y.grad");
  EXPECT_EQ(gradient.kind, TensorKind::gradient);
}

// A parameter with two uses in each micro-batch.
Graph split_graph(std::uint32_t parts, std::uint32_t groups, std::vector<TensorId>* uses = nullptr) {
  GraphBuilder b;
  b.split_batch(parts, groups);
  const Value x = b.input("x", {4, 3}, DataType::f32);
  Value loss, p;
  for (std::uint32_t part = 0; part < parts; ++part) {
    b.begin_unit("unit", part);
    p = b.parameter("p", {4, 3}, {});
    loss = b.sum_loss(test::reduce(b, "loss", test::scale(b, "z", test::scale(b, "y", x, p), p)));
  }
  const Graph graph = b.finish(loss, {});
  if (uses) *uses = b.use_gradients_of(p);
  return graph;
}

// What a tensor is the sum of, in brackets: leaves are named by their micro-batch and what `leaf` finds.
std::string sum_of(const Graph& graph, TensorId id, const std::string& kernel) {
  for (const Op& op : graph.ops) {
    if (op.writes.front() != id) continue;
    if (op.kernel != kernel) return op.name.substr(0, op.name.find(".backward"));
    return "(" + sum_of(graph, op.reads[0], kernel) + "+" + sum_of(graph, op.reads[1], kernel) + ")";
  }
  return "?";
}

TEST(GraphBuilder, AddsGradientsAndLossOverGroupsInATree) {
  std::vector<TensorId> uses;
  const Graph graph = split_graph(8, 8, &uses);
  ASSERT_EQ(uses.size(), 2U);
  const auto tree = [](const std::string& of) {
    const auto leaf = [&](int part) { return "micro." + std::to_string(part) + "." + of; };
    const auto pair = [&](int part) { return "(" + leaf(part) + "+" + leaf(part + 1) + ")"; };
    return "((" + pair(0) + "+" + pair(2) + ")+(" + pair(4) + "+" + pair(6) + "))";
  };
  EXPECT_EQ(sum_of(graph, uses[0], "accumulate"), tree("z"));
  EXPECT_EQ(sum_of(graph, uses[1], "accumulate"), tree("y"));
  EXPECT_EQ(sum_of(graph, graph.loss, "add_loss"), tree("loss"));
  const Op& last = op_of(graph, "p.grad.30.accumulate");
  EXPECT_THAT(last.reads, ElementsAre(uses[0], uses[1]));
  EXPECT_THAT(graph.tensor(uses[0]).kind, TensorKind::gradient);
}

TEST(GraphBuilder, AddsTheMicroBatchesOfAGroupInOrder) {
  std::vector<TensorId> uses;
  const Graph graph = split_graph(6, 2, &uses);
  EXPECT_EQ(sum_of(graph, uses[0], "accumulate"),
            "(((micro.0.z+micro.1.z)+micro.2.z)+((micro.3.z+micro.4.z)+micro.5.z))");
  EXPECT_EQ(sum_of(graph, graph.loss, "add_loss"),
            "(((micro.0.loss+micro.1.loss)+micro.2.loss)+((micro.3.loss+micro.4.loss)+micro.5.loss))");
  for (const Op& op : graph.ops) {
    if (op.kernel == "accumulate") {
      EXPECT_THAT(op.may_alias, ElementsAre(Alias{0, 0})) << op.name;
    }
  }
}

// Each addition is made as soon as both sides are there.
TEST(GraphBuilder, KeepsAsFewPartialSumsAsTheTreeIsDeep) {
  for (const auto& [parts, groups, most] :
       {std::tuple(8U, 1U, 1), std::tuple(16U, 2U, 2), std::tuple(16U, 8U, 4), std::tuple(32U, 16U, 5)}) {
    std::vector<TensorId> uses;
    const Graph graph = split_graph(parts, groups, &uses);
    // Of the first use: gradients and their sums between the units, from the op that writes them to the one
    // that reads them.
    std::vector<int> alive(parts, 0);
    for (const Op& writer : graph.ops)
      for (const Op& reader : graph.ops) {
        const bool reads = std::count(reader.reads.begin(), reader.reads.end(), writer.writes.front()) > 0;
        const bool is_partial =
            writer.name.ends_with("z.backward_parameter") || writer.kernel == "accumulate";
        if (!reads || !is_partial || reader.kernel != "accumulate" || writer.writes.front() == uses[0] ||
            sum_of(graph, writer.writes.front(), "accumulate").find(".z") == std::string::npos)
          continue;
        for (std::uint32_t unit = writer.unit; unit < reader.unit; ++unit) ++alive[unit];
      }
    EXPECT_EQ(*std::max_element(alive.begin(), alive.end()), most) << parts << ' ' << groups;
  }
}

TEST(GraphBuilder, OneGroupIsThePlainSum) {
  EXPECT_EQ(split_graph(4, 1).gradient_groups, 1U);
  EXPECT_EQ(split_graph(4, 2).gradient_groups, 2U);
  std::vector<TensorId> uses;
  const Graph graph = split_graph(4, 1, &uses);
  EXPECT_EQ(sum_of(graph, uses[0], "accumulate"), "(((micro.0.z+micro.1.z)+micro.2.z)+micro.3.z)");
}

TEST(GraphBuilder, RefusesGroupsAndSharesThatAreNone) {
  for (const std::uint32_t groups : {0U, 3U, 8U})
    expect_refused([&] { GraphBuilder().split_batch(6, groups); }, "give a power of two that divides 6");
  expect_refused([] { GraphBuilder().split_batch(0, 1); }, "give at least 1");
  expect_refused([] { GraphBuilder().split_batch(4, 2, {2, 2}); }, "rank 2 of 2");
  expect_refused([] { GraphBuilder().split_batch(4, 2, {2, 3}); }, "a power of two");
  expect_refused(
      [] {
        GraphBuilder b;
        b.begin_unit("unit");
        b.split_batch(1, 1, {0, 2});
      },
      "call it first");
  expect_refused(
      [] {
        GraphBuilder b;
        b.split_batch(2);
        const Value x = b.input("x", {4, 3}, DataType::f32);
        b.begin_unit("unit");
        const Value loss = test::reduce(b, "loss", test::scale(b, "y", x, b.parameter("p", {4, 3}, {})));
        b.sum_loss(loss);
        b.sum_loss(loss);
      },
      "call sum_loss once in each");
}

TEST(GraphBuilder, ScopesPrefixNames) {
  GraphBuilder b;
  b.push_scope("h");
  b.push_scope("3");
  Value p = b.parameter("p", {2}, {});
  Value x = b.input("x", {2}, DataType::f32);
  Value y = test::scale(b, "y", x, p);
  b.pop_scope();
  EXPECT_EQ(b.tensor(b.activation("a", {1})).name, "h.a");
  EXPECT_EQ(b.tensor(b.workspace("w", 1)).name, "h.w");
  b.pop_scope();
  EXPECT_EQ(b.tensor(p).name, "h.3.p");
  EXPECT_EQ(b.tensor(x).name, "h.3.x");
  EXPECT_EQ(b.tensor(y).name, "h.3.y");
}

TEST(GraphBuilder, AnOpenScopeLeavesBackwardNamesAlone) {
  GraphBuilder b;
  b.push_scope("h");
  Value p = b.parameter("p", {2}, {});
  Value y = test::scale(b, "y", b.input("x", {2}, DataType::f32), p);
  Graph graph = b.finish(test::reduce(b, "loss", y), {});
  EXPECT_THAT(op_names(graph), ElementsAre("h.y", "h.loss", "h.loss.backward", "h.y.backward_parameter",
                                           "h.p.grad.square_sum", "clip", "h.p.adamw"));
}

TEST(GraphBuilder, WithoutACallThereIsOneUnit) {
  Start s;
  Graph graph = s.b.finish_without_update(test::reduce(s.b, "loss", test::scale(s.b, "y", s.x, s.p)));
  EXPECT_EQ(graph.unit_names.size(), 1U);
  for (const Op& op : graph.ops) EXPECT_EQ(op.unit, 0U);
}

TEST(GraphBuilder, CountsTheOperandsBytesUnlessTold) {
  Graph graph = test::small_graph();
  EXPECT_EQ(graph.ops[0].cost.bytes, 4.0 * (12 + 9 + 12));
  EXPECT_EQ(op_of(graph, "loss").cost, (OpCost{12.5, 1e-310}));
}

TEST(GraphBuilder, WorkspacesHoldAtLeastTheirBytes) {
  GraphBuilder b;
  EXPECT_EQ(b.tensor(b.workspace("w", 10)).bytes(), 12U);
  EXPECT_EQ(b.tensor(b.workspace("v", 8)).bytes(), 8U);
}

TEST(GraphBuilder, RefusesMisuse) {
  for (const DataType type : {DataType::i32, DataType::i16, DataType::u8})
    expect_refused([type] { GraphBuilder b(type); }, "work type");
  expect_refused([] { GraphBuilder().pop_scope(); }, "pop_scope");
  expect_refused([] { GraphBuilder().parameter("p", {3, 0}, {}); }, "[3, 0] of 'p'");
  expect_refused([] { GraphBuilder().activation("a", {std::int64_t{1} << 62}); }, "of 'a'");
  expect_refused([] { GraphBuilder().tensor({}); }, "an empty Value");
  expect_refused([] { GraphBuilder().op({"o", "k", {}, {Value{}}, {}, {}, {}}); }, "an empty Value");
  expect_refused(
      [] {
        GraphBuilder b;
        b.begin_unit("empty");
        b.begin_unit("next");
      },
      "unit 'empty' has no op");
}

TEST(GraphBuilder, RefusesOpsThatDoNotFit) {
  Start s;
  Value y = test::scale(s.b, "y", s.x, s.p);
  Value small = s.b.activation("small", {3});
  expect_refused(
      [&] {
        s.b.op({"o", "k", {}, {y}, {small}, {{0, 0}}, {}});
      },
      "'small' [3] may not alias 'y'");
  expect_refused(
      [&] {
        s.b.op({"o", "k", {}, {y}, {small}, {{1, 0}}, {}});
      },
      "op 'o': an alias names an operand");
  expect_refused(
      [&] {
        s.b.op({"o", "k", {}, {s.x}, {y}, {}, {}});
      },
      "writes 'y', which op 'y' writes already");
}

TEST(GraphBuilder, RefusesALossThatIsNone) {
  Start s;
  Value y = test::scale(s.b, "y", s.x, s.p);
  expect_refused([&] { s.b.finish(y, {}); }, "the loss 'y' is not an f64 scalar");
  Value unwritten = s.b.activation("unwritten", {}, DataType::f64);
  expect_refused([&] { s.b.finish(unwritten, {}); }, "the loss 'unwritten' is not an f64 scalar");
}

TEST(GraphBuilder, AFrozenParameterHasNoGradientNoStateAndNoUpdate) {
  GraphBuilder b;
  const Value x = b.input("x", {4, 3}, DataType::f32);
  const Value v = b.frozen_parameter("v", {4, 3}, {});
  const Value y = test::scale(b, "y", x, v);  // of which nothing wants a gradient
  const Value z = test::scale(b, "z", y, b.parameter("w", {4, 3}, {}));
  const Graph graph = b.finish(test::reduce(b, "loss", test::scale(b, "u", z, v)), {});
  EXPECT_FALSE(graph.is_trained(v.id));
  int updates = 0;
  for (const Op& op : graph.ops) {
    EXPECT_EQ(std::count(op.writes.begin(), op.writes.end(), v.id), 0) << op.name;
    EXPECT_FALSE(op.name.starts_with("y.backward")) << op.name;
    updates += op.kernel == "adamw" ? 1 : 0;
  }
  EXPECT_EQ(updates, 1);
  for (const Tensor& tensor : graph.tensors) EXPECT_FALSE(tensor.name.starts_with("v.")) << tensor.name;
}

TEST(GraphBuilder, RefusesAParameterWithoutGradient) {
  Start s;
  s.b.parameter("idle", {1}, {});
  Value loss = test::reduce(s.b, "loss", test::scale(s.b, "y", s.x, s.p));
  expect_refused([&] { s.b.finish(loss, {}); }, "no gradient reaches the parameter 'idle'");
}

TEST(GraphBuilder, RefusesAnOpWithoutRuleOnTheWayToTheLoss) {
  Start s;
  Value y = s.b.activation("y", {4, 3});
  s.b.op({"y", "opaque", {}, {s.p}, {y}, {}, {}});
  Value loss = test::reduce(s.b, "loss", y);
  expect_refused([&] { s.b.finish(loss, {}); }, "op 'y' has no backward rule");
}

TEST(GraphBuilder, RefusesAnythingAfterFinish) {
  Start s;
  Value loss = test::reduce(s.b, "loss", test::scale(s.b, "y", s.x, s.p));
  s.b.finish(loss, {});
  expect_refused([&] { s.b.activation("a", {1}); }, "'a' comes after finish");
  expect_refused([&] { s.b.op({"o", "k", {}, {}, {}, {}, {}}); }, "'o' comes after finish");
  expect_refused([&] { s.b.finish(loss, {}); }, "'loss' comes after finish");
  expect_refused([&] { s.b.begin_unit("u"); }, "'u' comes after finish");
}

// What a backward rule does wrong is named when the rule runs.
void expect_rule_refused(const std::function<void(GraphBuilder&, Value p, Value x, Value y, Value dy)>& rule,
                         const std::string& message) {
  Start s;
  Value y = s.b.activation("y", {4, 3});
  s.b.op({"y", "own", {}, {s.p, s.x}, {y}, {}, {}},
         [&](GraphBuilder& b, const std::vector<Value>& gradients) { rule(b, s.p, s.x, y, gradients[0]); });
  Value loss = test::reduce(s.b, "loss", y);
  expect_refused([&] { s.b.finish(loss, {}); }, message);
}

TEST(GraphBuilder, RefusesRulesThatDoNotFit) {
  expect_rule_refused([](auto& b, Value, Value x, Value, Value dy) { b.add_gradient(x, dy, false); },
                      "'x' wants no gradient here");
  expect_rule_refused(
      [](auto& b, Value p, Value, Value, Value) { b.add_gradient(p, b.activation("g", {3}), true); },
      "the gradient 'g' [3] does not fit 'p' [4, 3]");
  expect_rule_refused(
      [](auto& b, Value p, Value, Value, Value) { b.add_gradient(p, b.gradient_like(p), true); },
      "no backward op writes the gradient 'p.grad'");
  expect_rule_refused(
      [](auto& b, Value p, Value, Value, Value dy) {
        Value g = b.gradient_like(p);
        b.op({"o", "k", {}, {dy}, {g}, {}, {}});
        b.set_gradient(p, g);
      },
      "'p' is no activation");
  expect_rule_refused(
      [](auto& b, Value p, Value, Value, Value dy) {
        Value g = b.gradient_like(p);
        b.op({"o", "k", {}, {dy}, {g}, {}, {}}, [](GraphBuilder&, const std::vector<Value>&) {});
      },
      "op 'o' is no forward op but has a backward rule");
  expect_rule_refused(  // in place, then read once more
      [](auto& b, Value p, Value, Value, Value dy) {
        Value g = b.gradient_like(p);
        b.op({"o", "k", {}, {dy}, {g}, {{0, 0}}, {}});
        b.add_gradient(p, g, true);
        b.op({"late", "k", {}, {dy}, {b.activation("unused", {1})}, {}, {}});
      },
      "op 'o' may overwrite 'y.grad' but is not its last reader: op 'late'");
}

TEST(GraphBuilder, GradientsAreGivenInRulesAlone) {
  Start s;
  expect_refused([&] { s.b.add_gradient(s.p, s.p, false); }, "'p' wants no gradient here");
}

}  // namespace
}  // namespace stowage
