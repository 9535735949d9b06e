// How the chunk grid cuts large parameters, and which slices check() refuses.
#include <gmock/gmock.h>

#include <functional>

#include "stowage/graph_builder.h"
#include "stowage/trace.h"
#include "tests/support/expect_refused.h"
#include "tests/support/graph_queries.h"
#include "tests/support/small_graph.h"

namespace stowage {
namespace {

using test::tensor_named;
using test::tensor_names;
using testing::ElementsAre;

constexpr ChunkGrid small_grid{.slice_bytes = 1_KiB, .most_slices = 4, .least_slices = 2, .least_share = 0.5};

// "table", large, and "gain", small.
Graph cut_graph(const ChunkGrid& grid, std::int64_t rows = 100, std::int64_t columns = 16,
                DataType type = DataType::f32, Moments moments = Moments::f32) {
  GraphBuilder b(type);
  Value table = b.parameter("table", {rows, columns}, {});
  Value gain = b.parameter("gain", {columns}, {});
  Value x = b.input("x", {rows, columns}, type);
  Value y = test::scale(b, "b", test::scale(b, "a", x, table), gain);
  return b.finish(test::reduce(b, "loss", y), {.moments = moments, .grid = grid});
}
Graph cut_graph() { return cut_graph(small_grid); }

const Op& op_of(const Graph& graph, const std::string& name) { return graph.op(test::op_named(graph, name)); }

std::vector<std::int64_t> first_rows(const Graph& graph, const std::string& whole) {
  std::vector<std::int64_t> rows;
  const std::vector<std::vector<TensorId>> slices = graph.slices();
  for (const TensorId id : slices[tensor_named(graph, whole)]) rows.push_back(graph.tensor(id).first_row);
  return rows;
}

// 14 bytes for each parameter in f16, 12 in bf16: the weight, two moments, and what makes a master of it.
TEST(Update, KeepsWhatANarrowWeightLacksOfItsMaster) {
  for (const auto& [type, low] : {std::pair{DataType::bf16, DataType::i16}, {DataType::f16, DataType::i32}}) {
    const Graph graph = cut_graph(small_grid, 100, 16, type);
    EXPECT_EQ(graph.tensor(tensor_named(graph, "gain.low")).type, low);
    EXPECT_EQ(graph.tensor(tensor_named(graph, "gain.adam_m")).type, DataType::f32);
    EXPECT_EQ(graph.tensor(tensor_named(graph, "gain.adam_v")).type, DataType::f32);
    EXPECT_EQ(tensor_names(graph, op_of(graph, "gain.adamw").writes).back(), "gain.low");
  }
  const Graph graph = cut_graph();
  EXPECT_EQ(op_of(graph, "gain.adamw").writes.size(), 3U);
}

TEST(Slices, ALargeParameterHasAnUpdateForEach) {
  const Graph graph = cut_graph();
  EXPECT_THAT(first_rows(graph, "table"), ElementsAre(0, 28, 56, 84));  // 25 rows, in fours of 64 bytes each
  EXPECT_EQ(first_rows(graph, "table.grad"), first_rows(graph, "table"));
  EXPECT_EQ(first_rows(graph, "table.adam_m"), first_rows(graph, "table"));
  EXPECT_THAT(first_rows(graph, "gain"), ElementsAre());

  const TensorId last = tensor_named(graph, "table.slice3");
  EXPECT_EQ(graph.tensor(last).shape, (std::vector<std::int64_t>{16, 16}));
  EXPECT_EQ(graph.whole_of(last), tensor_named(graph, "table"));
  EXPECT_EQ(graph.kind_of(last), TensorKind::parameter);
  EXPECT_EQ(graph.offset_in_whole(last), 84U * 64U);

  const Op& update = op_of(graph, "table.adamw.slice3");
  EXPECT_THAT(
      tensor_names(graph, update.reads),
      ElementsAre("table.slice3", "table.grad.slice3", "table.adam_m.slice3", "table.adam_v.slice3", "clip"));
  EXPECT_THAT(tensor_names(graph, update.writes),
              ElementsAre("table.slice3", "table.adam_m.slice3", "table.adam_v.slice3"));
  EXPECT_THAT(tensor_names(graph, op_of(graph, "table.grad.square_sum.slice3").reads),
              ElementsAre("table.grad.slice3"));
}

TEST(Slices, ThePartsOfTheNormAreInTheOrderOfRows) {
  const Graph graph = cut_graph();
  EXPECT_THAT(
      tensor_names(graph, op_of(graph, "clip").reads),
      ElementsAre("table.grad.square_sum.slice0", "table.grad.square_sum.slice1",
                  "table.grad.square_sum.slice2", "table.grad.square_sum.slice3", "gain.grad.square_sum"));
}

TEST(Slices, TheLowerHalvesOfMasterWeightsAreCutToo) {
  const Graph graph = cut_graph(small_grid, 400, 16, DataType::bf16);
  EXPECT_EQ(first_rows(graph, "table.low").size(), 4U);
}

// Blocks of 256 moments are never cut, nor are aligned ranges of their scales: 64 blocks, or 16 rows of
// 1,024.
TEST(Slices, AreWholeBlocksOf8BitMoments) {
  const Graph graph = cut_graph(small_grid, 70, 1024, DataType::bf16, Moments::eight_bit);
  EXPECT_THAT(first_rows(graph, "table"), ElementsAre(0, 32, 64));
  EXPECT_THAT(first_rows(graph, "table.adam_m"), ElementsAre(0, 32, 64));
  EXPECT_THAT(first_rows(graph, "table.adam_m_scale"), ElementsAre(0, 128, 256));
  EXPECT_EQ(graph.tensor(tensor_named(graph, "table.adam_v_scale")).shape, (std::vector<std::int64_t>{280}));
  EXPECT_EQ(graph.tensor(tensor_named(graph, "table.adam_v")).type, DataType::u8);
  EXPECT_EQ(graph.tensor(tensor_named(graph, "gain.adam_v")).type, DataType::f32);
  EXPECT_THAT(tensor_names(graph, op_of(graph, "table.adamw.slice2").writes),
              ElementsAre("table.slice2", "table.adam_m.slice2", "table.adam_v.slice2", "table.low.slice2",
                          "table.adam_m_scale.slice2", "table.adam_v_scale.slice2"));
  EXPECT_EQ(graph_from_json(to_json(graph)), graph);
}

// A slice's random bits are those of its elements in the whole parameter.
TEST(Slices, SayWhereTheirBf16MomentsAre) {
  const Graph graph = cut_graph(small_grid, 70, 1024, DataType::f32, Moments::bf16);
  const Attributes& third = op_of(graph, "table.adamw.slice2").attributes;
  EXPECT_EQ(std::get<std::int64_t>(third.at("first_element")), 64 * 1024);
  EXPECT_EQ(third.at("key"), op_of(graph, "table.adamw.slice0").attributes.at("key"));
  EXPECT_FALSE(op_of(graph, "gain.adamw").attributes.contains("key"));
}

TEST(Slices, AParameterThatIsSmallOrASmallShareIsNot) {
  ChunkGrid grid = small_grid;
  grid.least_slices = 7;  // 6,400 bytes
  EXPECT_EQ(cut_graph(grid), cut_graph({.most_slices = 1}));
  grid = small_grid;
  grid.least_share = 1;
  EXPECT_EQ(cut_graph(grid), cut_graph({.most_slices = 1}));
}

TEST(Slices, ARowThatIsLargerThanASliceIsOne) {
  EXPECT_THAT(first_rows(cut_graph(small_grid, 3, 4096), "table"), ElementsAre(0, 1, 2));
}

TEST(Slices, ReadBackFromJson) {
  const Graph graph = cut_graph();
  const std::string text = to_json(graph);
  EXPECT_NE(text.find("\"version\": 3"), std::string::npos);
  EXPECT_EQ(graph_from_json(text), graph);
}

// A trace has none: the reader cuts what the grid says.
TEST(Slices, ATraceHasNone) {
  const std::string text = R"({"stowage_trace": 1, "loss": "loss", "optimizer": {"name": "adamw"}}
{"tensor": "w", "kind": "slice", "type": "f32", "shape": [4]}
)";
  test::expect_refused([&] { graph_from_trace(text); }, "'kind' is not a known word");
}

struct Breach {
  const char* name;
  const char* message;
  std::function<void(Graph&)> make;
};
class SliceBreach : public testing::TestWithParam<Breach> {};

TEST_P(SliceBreach, IsRejected) {
  Graph graph = cut_graph();
  GetParam().make(graph);
  test::expect_refused([&] { check(graph); }, GetParam().message);
}

Tensor& slice(Graph& graph, const char* name) { return graph.tensors[tensor_named(graph, name)]; }
TensorId& first_read(Graph& graph, const char* op) { return graph.ops[test::op_named(graph, op)].reads[0]; }

const Breach breaches[] = {
    {"OfNothing", "does not stand behind", [](Graph& g) { slice(g, "table.slice0").whole = no_id; }},
    {"OfItself", "does not stand behind",
     [](Graph& g) { slice(g, "table.slice0").whole = tensor_named(g, "table.slice0"); }},
    {"OfASlice", "cannot be cut",
     [](Graph& g) { slice(g, "table.slice1").whole = tensor_named(g, "table.slice0"); }},
    {"OfAnInput", "is of the input 'x'",
     [](Graph& g) { slice(g, "table.slice0").whole = tensor_named(g, "x"); }},
    {"Gap", "not the next rows", [](Graph& g) { slice(g, "table.slice1").first_row += 4; }},
    {"Overlap", "not the next rows", [](Graph& g) { slice(g, "table.slice1").first_row -= 4; }},
    {"TooManyRows", "not the next rows", [](Graph& g) { slice(g, "table.slice3").shape[0] = 17; }},
    {"TooFewRows", "not all of its rows", [](Graph& g) { slice(g, "table.slice3").shape[0] = 12; }},
    {"AllRows", "is all of", [](Graph& g) { slice(g, "table.slice0").shape[0] = 100; }},
    {"OtherColumns", "not the next rows", [](Graph& g) { slice(g, "table.slice3").shape[1] = 8; }},
    {"OtherType", "not the next rows", [](Graph& g) { slice(g, "table.slice3").type = DataType::i32; }},
    {"NotAligned", "in the midst of an aligned range",
     [](Graph& g) {
       slice(g, "table.slice0").shape[0] = slice(g, "table.slice1").first_row = 27;
       slice(g, "table.slice1").shape[0] = 29;
     }},
    {"RowsOfNoSlice", "is no slice", [](Graph& g) { slice(g, "gain").first_row = 1; }},
    {"ReadInForward", "reads the slice",
     [](Graph& g) { first_read(g, "a") = tensor_named(g, "table.slice0"); }},
    {"UpdateOfTheWhole", "updates go by its slices",
     [](Graph& g) { first_read(g, "table.adamw.slice0") = tensor_named(g, "table"); }},
    {"WriteOfTheWhole", "updates go by its slices",
     [](Graph& g) { g.ops[test::op_named(g, "table.adamw.slice0")].writes[0] = tensor_named(g, "table"); }},
    {"WriteOfAGradientsSlice", "written as a whole",
     [](Graph& g) {
       g.ops[test::op_named(g, "table.adamw.slice0")].writes[0] = tensor_named(g, "table.grad.slice0");
     }},
    {"ReadBeforeTheWholeIsThere", "before it is written",
     [](Graph& g) { first_read(g, "loss") = tensor_named(g, "table.grad.slice0"); }},
};

INSTANTIATE_TEST_SUITE_P(Each, SliceBreach, testing::ValuesIn(breaches),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace stowage
