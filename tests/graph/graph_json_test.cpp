#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "stowage/graph.h"
#include "tests/support/expect_refused.h"
#include "tests/support/small_graph.h"

namespace stowage {
namespace {

std::string replaced(std::string text, const std::string& what, const std::string& with) {
  std::size_t at = text.find(what);
  if (at == std::string::npos) throw InvalidInput("no '" + what + "' in the text; correct the test");
  return text.replace(at, what.size(), with);
}

void expect_refused(const std::string& text, const std::string& message) {
  test::expect_refused([&] { graph_from_json(text); }, message);
}

TEST(GraphJson, ReadsBackEqual) {
  Graph graph = test::small_graph();
  std::string text = to_json(graph);
  EXPECT_EQ(graph_from_json(text), graph);
  EXPECT_EQ(to_json(graph_from_json(text)), text);
}

TEST(GraphJson, AnEmptyGraphReadsBack) { EXPECT_EQ(graph_from_json(to_json(Graph{})), Graph{}); }

TEST(GraphJson, DoublesReadBackToTheBit) {
  Graph graph = test::small_graph();
  Attributes& attributes = graph.ops[0].attributes;
  attributes["tenth"] = 0.1;
  attributes["denormal"] = std::numeric_limits<double>::denorm_min();
  attributes["largest"] = std::numeric_limits<double>::max();
  attributes["third"] = 1.0 / 3;
  attributes["whole"] = 2.0;
  attributes["minus_zero"] = -0.0;
  attributes["integer"] = std::numeric_limits<std::int64_t>::min();
  Graph back = graph_from_json(to_json(graph));
  EXPECT_EQ(back, graph);
  EXPECT_TRUE(std::signbit(std::get<double>(back.ops[0].attributes["minus_zero"])));
  EXPECT_TRUE(std::holds_alternative<double>(back.ops[0].attributes["whole"]));
}

TEST(GraphJson, RefusesToWriteAGraphThatIsNone) {
  Graph graph = test::small_graph();
  graph.ops[0].reads[0] = 4000;
  EXPECT_THROW(to_json(graph), InvalidInput);
}

TEST(GraphJson, RefusesNamesThatAreNotUtf8) {
  Graph graph = test::small_graph();
  graph.tensors[0].name = "\xff";
  EXPECT_THROW(to_json(graph), InvalidInput);
}

TEST(GraphJson, NamesTheFieldThatDoesNotFit) {
  std::string text = to_json(test::small_graph());
  expect_refused("", "graph JSON");
  expect_refused("[]", "'the text' is not an object");
  expect_refused("{}", "'format' is not there");
  expect_refused(replaced(text, "stowage-graph", "other"), "'format' is not 'stowage-graph'");
  expect_refused(replaced(text, "\"version\": 1", "\"version\": 7"),
                 "'version' is not version 1, 2, 3, 4, 5 or 6");
  expect_refused(replaced(text, "\"version\"", "\"more\": 0, \"version\""), "'more' is not a known field");
  expect_refused(replaced(text, "\"clip\": ", "\"clip\": -"), "'clip' is not an id");
  expect_refused(replaced(text, "\"clip\": ", "\"clip\": 429496729500"), "'clip' is not an id");
  expect_refused(replaced(text, "\"name\": \"x\"", "\"name\": 7"), "'tensors[0].name' is not a string");
  expect_refused(replaced(text, "\"name\": \"x\",", ""), "'tensors[0].name' is not there");
  expect_refused(replaced(text, "\"type\": \"f32\"", "\"type\": \"f8\""),
                 "'tensors[0].type' is not a known word");
  expect_refused(replaced(text, "\"kind\": \"input\"", "\"kind\": \"\""),
                 "'tensors[0].kind' is not a known word");
  expect_refused(replaced(text, "\"mean\": 0.25", "\"mean\": null"),
                 "'tensors[1].mean' is not a finite number");
  expect_refused(replaced(text, "\"mean\": 0.25", "\"mean\": 1e999"), "graph JSON");
  expect_refused(replaced(text, "\"by\": 0.1", "\"by\": [1]"),
                 "'ops[0].attributes.by' is not a number or a string");
  expect_refused(replaced(text, "\"rounds\": 3", "\"rounds\": 9223372036854775808"),
                 "'ops[0].attributes.rounds' is not an integer of 64 bits");
  expect_refused(replaced(text, "\"phase\": \"forward\"", "\"phase\": 0"), "'ops[0].phase' is not a string");
  expect_refused(replaced(text, "\"unit\": 0", "\"unit\": 0.5"), "'ops[0].unit' is not an integer");
  expect_refused(replaced(text, "\"reads\": [", "\"reads\": [-1,"), "'ops[0].reads[0]' is not an id");
  expect_refused(replaced(text, "\"reads\": [", "\"reads\": [4000,"), "op 'y1' reads tensor 4000");
  expect_refused(replaced(text, "\"units\": [", "\"units\": [[],"), "'units[0]' is not a string");
}

TEST(GraphJson, HasVersionTwoOnlyWhereTimesWereMeasured) {
  Graph graph = test::small_graph();
  EXPECT_NE(to_json(graph).find("\"version\": 1"), std::string::npos);
  graph.ops[1].cost.seconds = 0.1;
  graph.ops[2].cost.seconds = 0;
  const std::string text = to_json(graph);
  EXPECT_NE(text.find("\"version\": 2"), std::string::npos);
  EXPECT_EQ(graph_from_json(text), graph);
  expect_refused(replaced(text, "\"version\": 2", "\"version\": 1"), "'ops[1].seconds' is not a known field");
  expect_refused(replaced(text, "\"seconds\": 0.1", "\"seconds\": null"),
                 "'ops[1].seconds' is not a finite number");
  expect_refused(replaced(text, "\"seconds\": 0.1", "\"seconds\": -0.1"), "the cost of op 'y2' is negative");
}

TEST(GraphJson, HasVersionFiveForWhatIsNotTrainedNotReplayableOrTyped) {
  const auto written = [](const std::function<void(Graph&)>& change) {
    GraphBuilder b;
    const Value x = b.input("x", {4, 3}, DataType::f32);
    const Value y = test::scale(b, "y", x, b.parameter("w", {4, 3}, {}));
    Graph graph =
        b.finish(test::reduce(b, "loss", test::scale(b, "z", y, b.frozen_parameter("v", {4, 3}, {}))), {});
    change(graph);
    const std::string text = to_json(graph);
    EXPECT_EQ(graph_from_json(text), graph);
    EXPECT_NE(text.find("\"version\": 5"), std::string::npos);
    return text;
  };
  const std::string text = written([](Graph&) {});
  expect_refused(replaced(text, "\"version\": 5", "\"version\": 4"), ".trained' is not a known field");
  expect_refused(replaced(text, "\"trained\": false", "\"trained\": 0"), ".trained' is not true or false");
  written([](Graph& graph) { graph.ops[0].replayable = false; });
  written([](Graph& graph) { graph.ops[1].cost.type = DataType::f16; });
  written([](Graph& graph) { graph.samples = 4, graph.tokens = 12; });
}

// A graph of `parts` micro-batches with one parameter, of one half-block or two.
Graph split_graph(std::uint32_t parts, std::uint32_t groups, int half_blocks = 1) {
  GraphBuilder b;
  b.split_batch(parts, groups);
  const Value x = b.input("x", {4, 3}, DataType::f32);
  std::vector<Value> y(parts, x);
  for (std::uint32_t part = 0; half_blocks > 1 && part < parts; ++part) {
    b.begin_unit("first", part);
    y[part] = test::scale(b, "z", x, b.parameter("q", {4, 3}, {}));
  }
  Value loss;
  for (std::uint32_t part = 0; part < parts; ++part) {
    b.begin_unit("unit", part);
    loss = b.sum_loss(test::reduce(b, "loss", test::scale(b, "y", y[part], b.parameter("p", {4, 3}, {}))));
  }
  return b.finish(loss, {});
}

TEST(GraphJson, HasVersionFourOnlyWhereThereAreGradientGroups) {
  EXPECT_NE(to_json(split_graph(4, 1)).find("\"version\": 1"), std::string::npos);
  EXPECT_EQ(to_json(split_graph(4, 1)).find("gradient_groups"), std::string::npos);
  const Graph graph = split_graph(4, 2);
  const std::string text = to_json(graph);
  EXPECT_NE(text.find("\"version\": 4"), std::string::npos);
  EXPECT_EQ(graph_from_json(text), graph);
  EXPECT_NE(graph, split_graph(4, 4));
  const std::string groups = "\"gradient_groups\": 2";
  expect_refused(replaced(text, "\"version\": 4", "\"version\": 3"),
                 "'gradient_groups' is not a known field");
  expect_refused(replaced(text, groups, "\"gradient_groups\": 2.5"), "'gradient_groups' is not an integer");
  for (const char* wrong : {"0", "3", "8", "4294967295"})
    expect_refused(replaced(text, groups, "\"gradient_groups\": " + std::string(wrong)),
                   wrong == std::string("4294967295") ? "'gradient_groups' is not an id"
                                                      : "are no power of two that divides 4 micro-batches");
}

TEST(GraphJson, HasVersionSixOnlyWhereThereAreRanges) {
  Graph graph = split_graph(4, 1, 2);
  EXPECT_NE(to_json(graph).find("\"version\": 1"), std::string::npos);
  graph.range_begins = {1};
  const std::string text = to_json(graph), begins = "\"range_begins\": [\n  1\n ]";
  EXPECT_NE(text.find("\"version\": 6"), std::string::npos);
  EXPECT_EQ(graph_from_json(text), graph);
  expect_refused(replaced(text, "\"version\": 6", "\"version\": 5"), "'range_begins' is not a known field");
  expect_refused(replaced(text, begins, "\"range_begins\": [-1]"), "'range_begins[0]' is not an id");
  for (const char* wrong : {"[0]", "[2]", "[1, 1]", "[7, 1]"})
    expect_refused(replaced(text, begins, "\"range_begins\": " + std::string(wrong)),
                   "a range begins at half-block");
}

TEST(GraphJson, RefusesShapesThatDoNotFit) {
  std::string text = to_json(test::small_graph());
  std::string shape = "\"shape\": [\n    4,\n    3\n   ]";
  expect_refused(replaced(text, shape, "\"shape\": [9223372036854775807, 9]"), "overflows");
  expect_refused(replaced(text, shape, "\"shape\": [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]"),
                 "'tensors[0].shape' is not a list of at most 16 items");
  expect_refused(replaced(text, shape, "\"shape\": [4.0, 3]"), "'tensors[0].shape[0]' is not an integer");
  expect_refused(replaced(text, shape, "\"shape\": {}"), "'tensors[0].shape' is not a list");
}

TEST(GraphJson, RefusesListsThatAreTooLong) {
  std::string items = "0";
  for (int i = 0; i < 1 << 16; ++i) items += ",0";
  expect_refused(replaced(to_json(test::small_graph()), "\"reads\": [", "\"reads\": [" + items + ","),
                 "'ops[0].reads' is not a list of at most 65536 items");
}

TEST(GraphJson, SurvivesDeepNesting) {
  expect_refused(std::string(200'000, '['), "graph JSON");
  expect_refused(std::string(200'000, '[') + std::string(200'000, ']'), "'the text' is not an object");
}

TEST(GraphJson, SurvivesEveryTruncation) {
  std::string text = to_json(test::small_graph());
  for (std::size_t length = 0; length < text.size(); length += 7) {
    EXPECT_THROW(graph_from_json(std::string_view(text).substr(0, length)), InvalidInput) << length;
  }
}

// Whatever is read is a graph in its own right; nothing else than InvalidInput comes out.
TEST(GraphJson, SurvivesRandomDamage) {
  std::string whole = to_json(test::small_graph());
  std::mt19937 random(17);
  auto below = [&](std::size_t bound) { return random() % bound; };
  const std::string likely = "0123456789-.eE,:[]{}\"nul";
  int read = 0;
  int refused = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string text = whole;
    for (std::size_t hits = 1 + below(3); hits > 0; --hits) {
      std::size_t at = below(text.size());
      switch (below(4)) {
        case 0:
          text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
          break;
        case 1:
          text[at] = likely[below(likely.size())];
          break;
        case 2:
          text.erase(at, 1 + below(20));
          break;
        default:
          text.insert(at, text.substr(below(text.size()), 1 + below(20)));
          break;
      }
    }
    try {
      Graph graph = graph_from_json(text);
      EXPECT_EQ(graph_from_json(to_json(graph)), graph);
      ++read;
    } catch (const InvalidInput&) {
      ++refused;
    }
  }
  EXPECT_GT(read, 50);
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace stowage
