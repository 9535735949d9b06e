#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/nn.h"
#include "tests/support/expect_refused.h"
#include "tests/support/finite_difference.h"
#include "tests/support/graph_queries.h"

namespace stowage {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Gelu, GradientsMatchDifferences) {
  for (nn::Gelu form : {nn::Gelu::tanh, nn::Gelu::erf}) {
    test::GradientCheck check;
    check.run(nn::gelu(check.builder, "y", check.variable("x", {6, 7}), form));
  }
}

TEST(Gelu, EmitsTheContractsOps) {
  for (auto [form, word] : {std::pair{nn::Gelu::tanh, "tanh"}, std::pair{nn::Gelu::erf, "erf"}}) {
    GraphBuilder b(DataType::f64);
    Value y = nn::gelu(b, "y", b.parameter("x", {6, 7}, {}), form);
    Graph graph = b.finish_without_update(test::weighted_sum(b, y));
    EXPECT_THAT(test::op_names(graph), ElementsAre("y", "loss", "loss.backward", "y.backward"));
    for (OpId id : {0U, 3U}) EXPECT_EQ(graph.ops[id].attributes, (Attributes{{"form", std::string(word)}}));
    EXPECT_EQ(graph.ops[0].kernel, "gelu");
    EXPECT_EQ(graph.ops[3].kernel, "gelu_backward");
    EXPECT_THAT(test::tensor_names(graph, graph.ops[3].reads), ElementsAre("x", "y.grad"));
    EXPECT_THAT(graph.ops[3].may_alias, ElementsAre(Alias{0, 1}));
  }
}

TEST(Dropout, GradientsMatchDifferences) {
  test::GradientCheck check;
  Value x = check.variable("x", {6, 7});
  check.run(nn::gelu(check.builder, "y", nn::dropout(check.builder, "drop", x, 0.4), nn::Gelu::tanh));
}

TEST(Dropout, EmitsTheContractsOps) {
  GraphBuilder b(DataType::f64);
  Value x = b.parameter("x", {6, 7}, {});
  Value y = nn::dropout(b, "two", nn::dropout(b, "one", x, 0.25), 0.5);
  Graph graph = b.finish_without_update(test::weighted_sum(b, y));
  EXPECT_THAT(test::op_names(graph),
              ElementsAre("one", "two", "loss", "loss.backward", "two.backward", "one.backward"));
  for (OpId id : {0U, 1U, 4U, 5U}) EXPECT_EQ(graph.ops[id].kernel, "dropout");
  EXPECT_EQ(std::get<double>(graph.ops[0].attributes.at("probability")), 0.25);
  EXPECT_EQ(graph.ops[0].attributes, graph.ops[5].attributes);
  EXPECT_EQ(graph.ops[1].attributes, graph.ops[4].attributes);
  EXPECT_NE(graph.ops[0].attributes.at("key"), graph.ops[1].attributes.at("key"));
  EXPECT_THAT(graph.ops[0].may_alias, IsEmpty());
  EXPECT_THAT(graph.ops[4].may_alias, ElementsAre(Alias{0, 0}));
}

TEST(Dropout, IsNoOpForProbabilityZero) {
  GraphBuilder b;
  Value x = b.activation("x", {6, 7});
  EXPECT_EQ(nn::dropout(b, "drop", x, 0).id, x.id);
}

TEST(Dropout, RefusesProbabilitiesOutsideTheRange) {
  GraphBuilder b;
  Value x = b.activation("x", {6, 7});
  for (double probability : {-0.1, 1.0, std::nan("")}) {
    test::expect_refused([&] { nn::dropout(b, "drop", x, probability); }, "drop: the dropout probability");
  }
}

TEST(Add, GradientsMatchDifferences) {
  test::GradientCheck check;
  Value a = check.variable("a", {6, 7});
  Value b = check.variable("b", {6, 7});
  check.run(nn::gelu(check.builder, "y", nn::add(check.builder, "sum", a, b), nn::Gelu::erf));
}

TEST(AddDropout, GradientsMatchDifferences) {
  test::GradientCheck check;
  Value a = check.variable("a", {6, 7});
  Value b = check.variable("b", {6, 7});
  Value sum = nn::add_dropout(check.builder, "sum", a, b, 0.5);
  check.run(nn::gelu(check.builder, "y", sum, nn::Gelu::erf));
}

TEST(AddDropout, IsTheSumOfDropout) {
  std::vector<std::vector<double>> found;
  for (const bool fused : {false, true}) {
    GraphBuilder b(DataType::f64);
    Value x = b.input("x", {6, 77}, DataType::f64);
    Value p = b.parameter("p", {6, 77}, {0, 1});
    Value sum =
        fused ? nn::add_dropout(b, "y", x, p, 0.25) : nn::add(b, "sum", x, nn::dropout(b, "y", p, 0.25));
    Graph graph = b.finish_without_update(test::weighted_sum(b, sum));
    Evaluator evaluator(graph, test::launch_table_with_weighted_sum(), 1);
    test::fill_random(evaluator, x.id, 1);
    test::fill_random(evaluator, p.id, 2);
    evaluator.run(0, 0);
    found.emplace_back();
    for (const TensorId id : {sum.id, b.gradient_of(p)}) {
      const auto* values = reinterpret_cast<const double*>(evaluator.value(id).data());
      found.back().insert(found.back().end(), values, values + graph.tensor(id).elements());
    }
  }
  EXPECT_EQ(found[0], found[1]);
}

TEST(AddDropout, EmitsTheContractsOps) {
  GraphBuilder b(DataType::f64);
  Value p = nn::gelu(b, "p_g", b.parameter("p", {6, 7}, {}), nn::Gelu::tanh);
  Value q = nn::gelu(b, "q_g", b.parameter("q", {6, 7}, {}), nn::Gelu::tanh);
  Graph graph = b.finish_without_update(test::weighted_sum(b, nn::add_dropout(b, "y", p, q, 0.25)));
  EXPECT_THAT(test::op_names(graph), ElementsAre("p_g", "q_g", "y", "loss", "loss.backward", "y.backward",
                                                 "q_g.backward", "p_g.backward"));
  EXPECT_EQ(graph.ops[2].kernel, "add");
  EXPECT_EQ(std::get<double>(graph.ops[2].attributes.at("probability")), 0.25);
  EXPECT_EQ(graph.ops[5].kernel, "dropout");
  EXPECT_EQ(graph.ops[5].attributes, graph.ops[2].attributes);
  EXPECT_THAT(graph.ops[5].may_alias, IsEmpty());  // the other way takes the same gradient
  EXPECT_THAT(test::tensor_names(graph, graph.ops[7].reads), ElementsAre("p", "y.grad"));
}

TEST(AddDropout, MayOverwriteTheGradientWhereTheTrunkWantsNone) {
  GraphBuilder b(DataType::f64);
  Value x = b.input("x", {6, 7}, DataType::f64);
  Value p = b.parameter("p", {6, 7}, {});
  Graph graph = b.finish_without_update(test::weighted_sum(b, nn::add_dropout(b, "y", x, p, 0.25)));
  EXPECT_THAT(graph.ops[3].may_alias, ElementsAre(Alias{0, 0}));
}

TEST(AddDropout, IsAddForProbabilityZero) {
  GraphBuilder b(DataType::f64);
  Value x = b.input("x", {6, 7}, DataType::f64);
  Value y = nn::add_dropout(b, "y", x, b.parameter("p", {6, 7}, {}), 0);
  Graph graph = b.finish_without_update(test::weighted_sum(b, y));
  EXPECT_EQ(graph.ops[0].attributes, Attributes{});
}

TEST(AddDropout, RefusesWhatDoesNotFit) {
  GraphBuilder b;
  Value x = b.activation("x", {6, 7});
  Value y = b.activation("y", {6, 7});
  test::expect_refused([&] { nn::add_dropout(b, "drop", x, y, 1); }, "drop: the dropout probability");
  test::expect_refused(
      [&] {
        nn::add_dropout(b, "drop", x, b.activation("z", {7, 6}), 0.5);
      },
      "drop: the second input 'z'");
}

TEST(Add, OfAValueToItself) {
  test::GradientCheck check;
  Value x = nn::gelu(check.builder, "g", check.variable("x", {6, 7}), nn::Gelu::tanh);
  check.run(nn::gelu(check.builder, "y", nn::add(check.builder, "sum", x, x), nn::Gelu::tanh));
}

// x feeds a trunk and two branches, one of them twice removed.
TEST(Add, AValueUsedThreeTimes) {
  test::GradientCheck check;
  GraphBuilder& b = check.builder;
  Value x = nn::gelu(b, "g", check.variable("x", {6, 7}), nn::Gelu::erf);
  Value one = nn::gelu(b, "one", x, nn::Gelu::tanh);
  Value two = nn::linear(b, "two", x, check.variable("w", {7, 7}), {});
  check.run(nn::gelu(b, "y", nn::add(b, "second", nn::add(b, "first", x, one), two), nn::Gelu::tanh));
}

TEST(Add, PassesAFreshGradientOnToItsOnlyTaker) {
  GraphBuilder b(DataType::f64);
  Value x = b.input("x", {6, 7}, DataType::f64);
  Value g = nn::gelu(b, "g", b.parameter("p", {6, 7}, {}), nn::Gelu::tanh);
  Graph graph = b.finish_without_update(test::weighted_sum(b, nn::add(b, "y", x, g)));
  EXPECT_THAT(test::op_names(graph), ElementsAre("g", "y", "loss", "loss.backward", "g.backward"));
  EXPECT_THAT(test::tensor_names(graph, graph.ops[4].reads), ElementsAre("p", "y.grad"));
  EXPECT_THAT(graph.ops[4].may_alias, ElementsAre(Alias{0, 1}));
}

TEST(Add, ASharedGradientIsNotOverwritten) {
  GraphBuilder b(DataType::f64);
  Value p = nn::gelu(b, "p_g", b.parameter("p", {6, 7}, {}), nn::Gelu::tanh);
  Value q = nn::gelu(b, "q_g", b.parameter("q", {6, 7}, {}), nn::Gelu::tanh);
  Graph graph = b.finish_without_update(test::weighted_sum(b, nn::add(b, "y", p, q)));
  for (const char* name : {"p_g.backward", "q_g.backward"}) {
    EXPECT_THAT(graph.op(test::op_named(graph, name)).may_alias, IsEmpty());
  }
}

TEST(Add, RefusesShapesThatDoNotFit) {
  GraphBuilder b;
  Value x = b.activation("x", {6, 7});
  Value y = b.activation("y", {7, 6});
  test::expect_refused([&] { nn::add(b, "sum", x, y); },
                       "sum: the second input 'y' is f32 [7, 6]; give it f32 [6, 7]");
}

TEST(Tanh, GradientsMatchDifferences) {
  test::GradientCheck check;
  check.run(nn::tanh(check.builder, "y", check.variable("x", {6, 7})));
}

TEST(Tanh, EmitsTheContractsOps) {
  GraphBuilder b(DataType::f64);
  Value y = nn::tanh(b, "y", b.parameter("x", {6, 7}, {}));
  Graph graph = b.finish_without_update(test::weighted_sum(b, y));
  EXPECT_THAT(test::op_names(graph), ElementsAre("y", "loss", "loss.backward", "y.backward"));
  EXPECT_EQ(graph.ops[0].kernel, "tanh");
  EXPECT_EQ(graph.ops[3].kernel, "tanh_backward");
  EXPECT_THAT(test::tensor_names(graph, graph.ops[3].reads), ElementsAre("y", "y.grad"));
  EXPECT_THAT(graph.ops[3].may_alias, ElementsAre(Alias{0, 1}));
}

}  // namespace
}  // namespace stowage
