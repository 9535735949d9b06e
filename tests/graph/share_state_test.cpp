// Graphs of one rank of several: what it has a share of, and what it exchanges.
#include "src/graph/share_state.h"

#include <gmock/gmock.h>

#include "stowage/graph_builder.h"
#include "stowage/models.h"
#include "stowage/nn.h"
#include "tests/support/expect_refused.h"
#include "tests/support/graph_queries.h"
#include "tests/support/small_graph.h"

namespace stowage {
namespace {

using test::op_named;
using test::tensor_named;
using test::tensor_names;
using ::testing::ElementsAre;

ModelConfig tied_gpt(std::int64_t ranks, std::int64_t rank = 0) {
  ModelConfig config;
  config.layers = 1;
  config.width = 24;
  config.heads = 2;
  config.vocabulary = 100;
  config.sequence = 16;
  config.batch = 4;
  config.micro_batches = 4;
  config.gradient_groups = 4;
  config.ranks = ranks;
  config.rank = rank;
  config.dropout = 0.1;
  return config;
}

Graph graph_of(const ModelConfig& config, const AdamW& optimizer = {}) {
  GraphBuilder builder(DataType::bf16);
  const BuiltModel model = gpt(builder, config);
  return builder.finish(model.loss, optimizer);
}
const Op& op_of(const Graph& graph, const std::string& name) { return graph.op(op_named(graph, name)); }
const Tensor& tensor_of(const Graph& graph, const std::string& name) {
  return graph.tensor(tensor_named(graph, name));
}

TEST(ShareOf, CutsAParameterIntoEqualPieces) {
  const auto cut = [](std::int64_t elements, std::uint32_t groups, std::uint32_t ranks) {
    std::vector<std::int64_t> counts;
    std::int64_t next = 0;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      const ParameterShare share = share_of(elements, groups, {rank, ranks});
      EXPECT_EQ(share.piece % 256, 0);
      EXPECT_EQ(share.all, share.piece * groups);
      EXPECT_EQ(share.first, share.all * rank);
      EXPECT_TRUE(share.count == 0 || share.first == next);
      next += share.count;
      counts.push_back(share.count);
    }
    EXPECT_EQ(next, elements);
    return counts;
  };
  EXPECT_THAT(cut(2400, 1, 4), ElementsAre(768, 768, 768, 96));
  EXPECT_THAT(cut(2400, 2, 2), ElementsAre(1536, 864));
  EXPECT_THAT(cut(2400, 4, 1), ElementsAre(2400));
  EXPECT_THAT(cut(24, 1, 4), ElementsAre(24, 0, 0, 0));
  EXPECT_THAT(cut(1024, 1, 4), ElementsAre(256, 256, 256, 256));
}

// The same pieces, whatever the ranks.
TEST(ShareOf, PiecesDependOnAllGroupsAlone) {
  for (const std::int64_t elements : {1, 255, 257, 24 * 100, 1'000'003})
    for (const std::uint32_t ranks : {2U, 4U, 8U})
      EXPECT_EQ(share_of(elements, 8 / ranks, {0, ranks}).piece, share_of(elements, 8, {}).piece);
}

TEST(ShareState, AParameterIsGatheredBeforeItsFirstUse) {
  const Graph graph = graph_of(tied_gpt(4));
  EXPECT_THAT(tensor_of(graph, "wte.weight").shape, ElementsAre(3, 256));
  EXPECT_THAT(tensor_of(graph, "h.0.ln_1.bias").shape, ElementsAre(256));
  EXPECT_EQ(tensor_of(graph, "wte.weight.low").shape, tensor_of(graph, "wte.weight").shape);
  EXPECT_THAT(tensor_of(graph, "wte.weight.whole").shape, ElementsAre(100, 24));

  const OpId gather = op_named(graph, "wte.weight.gather");
  EXPECT_EQ(graph.op(gather).kernel, "gather");
  EXPECT_EQ(graph.op(gather).cost.peer_bytes, 3 * 768 * 2);
  EXPECT_THAT(tensor_names(graph, graph.op(gather).reads), ElementsAre("wte.weight"));
  EXPECT_THAT(tensor_names(graph, graph.op(gather).writes), ElementsAre("wte.weight.whole"));
  for (OpId id = 0; id < graph.ops.size(); ++id) {
    const Op& op = graph.op(id);
    const auto reads = [&](const char* name) {
      return std::find(op.reads.begin(), op.reads.end(), tensor_named(graph, name)) != op.reads.end();
    };
    EXPECT_TRUE(!reads("wte.weight") || id == gather || op.phase == Phase::update) << op.name;
    EXPECT_TRUE(!reads("wte.weight.whole") || id > gather) << op.name;
  }
}

// One exchange for each use of the tied table, and one of each other gradient.
TEST(ShareState, SharesOfEachUsesGradientAreAddedUpInTheTreeOfRanks) {
  const Graph graph = graph_of(tied_gpt(4, 3));
  const Op& update = op_of(graph, "wte.weight.adamw");
  const TensorId gradient = update.reads[1];
  EXPECT_EQ(graph.tensor(gradient).shape, tensor_of(graph, "wte.weight").shape);
  EXPECT_EQ(graph.tensor(gradient).kind, TensorKind::gradient);
  std::vector<std::string> sums;
  for (const Op& op : graph.ops) {
    if (std::find(op.writes.begin(), op.writes.end(), gradient) == op.writes.end()) continue;
    EXPECT_EQ(op.kernel, "accumulate");
    for (const TensorId use : op.reads)
      for (const Op& maker : graph.ops)
        if (std::find(maker.writes.begin(), maker.writes.end(), use) != maker.writes.end()) {
          sums.push_back(maker.kernel);
          EXPECT_EQ(maker.attributes.at("rows"), Attribute(std::int64_t{4}));
          EXPECT_EQ(maker.attributes.at("count"), Attribute(std::int64_t{96}));
          EXPECT_THAT(graph.tensor(maker.reads[0]).shape, ElementsAre(4, 768));
        }
  }
  EXPECT_THAT(sums, ElementsAre("tree_sum", "tree_sum"));
  const auto exchanges =
      std::count_if(graph.ops.begin(), graph.ops.end(), [](const Op& op) { return op.kernel == "exchange"; });
  const auto parameters = std::count_if(graph.tensors.begin(), graph.tensors.end(), [](const Tensor& tensor) {
    return tensor.kind == TensorKind::parameter;
  });
  EXPECT_EQ(exchanges, parameters + 1);
}

TEST(ShareState, NormAndLossAreSummedOverRanks) {
  const Graph graph = graph_of(tied_gpt(2, 1));
  EXPECT_EQ(op_of(graph, "clip").attributes.at("pieces"), Attribute(std::int64_t{2}));
  EXPECT_THAT(tensor_names(graph, op_of(graph, "clip").reads), ElementsAre("norm.parts"));
  EXPECT_EQ(op_of(graph, "norm.part").attributes.at("pieces"), Attribute(std::int64_t{2}));
  const Op& sum = op_of(graph, "wte.weight.grad.square_sum");
  EXPECT_EQ(sum.attributes.at("pieces"), Attribute(std::int64_t{2}));
  EXPECT_EQ(sum.attributes.at("piece"), Attribute(std::int64_t{768}));
  EXPECT_EQ(sum.attributes.at("count"), Attribute(std::int64_t{864}));
  EXPECT_EQ(graph.loss, tensor_named(graph, "loss.of_ranks"));
  EXPECT_THAT(tensor_names(graph, op_of(graph, "loss.parts").writes), ElementsAre("loss.parts"));
}

// One device with the same groups: whole parameters, and the same pieces of the norm.
TEST(ShareState, OneDeviceSumsTheSamePieces) {
  const Graph graph = graph_of(tied_gpt(1));
  EXPECT_EQ(op_of(graph, "clip").attributes.at("pieces"), Attribute(std::int64_t{4}));
  const Op& sum = op_of(graph, "wte.weight.grad.square_sum");
  EXPECT_EQ(sum.attributes.at("pieces"), Attribute(std::int64_t{4}));
  EXPECT_EQ(sum.attributes.at("piece"), Attribute(std::int64_t{768}));
  EXPECT_FALSE(sum.attributes.contains("count"));
  EXPECT_THAT(tensor_of(graph, "wte.weight").shape, ElementsAre(100, 24));
}

// So one plan serves all ranks.
TEST(ShareState, RanksDifferInAttributesAndInitializersAlone) {
  const auto bare = [](Graph graph) {
    for (Op& op : graph.ops) op.attributes.clear();
    for (Tensor& tensor : graph.tensors) tensor.initializer = {};
    graph.share = {};
    return graph;
  };
  for (const Moments moments : {Moments::f32, Moments::bf16, Moments::eight_bit}) {
    const Graph first = graph_of(tied_gpt(4), {.moments = moments});
    for (std::uint32_t rank = 1; rank < 4; ++rank) {
      const Graph other = graph_of(tied_gpt(4, rank), {.moments = moments});
      EXPECT_EQ(bare(other), bare(first));
      EXPECT_EQ(other.share, (BatchShare{rank, 4}));
      EXPECT_EQ(tensor_of(other, "wte.weight").initializer.first_element, 768 * rank);
    }
  }
}

TEST(ShareState, MatricesKeepTheirMomentsAndTheirDecay) {
  const Graph graph = graph_of(tied_gpt(4, 1), {.weight_decay = 0.1, .moments = Moments::eight_bit});
  EXPECT_EQ(tensor_of(graph, "wpe.weight.adam_m").type, DataType::u8);
  EXPECT_EQ(tensor_of(graph, "h.0.ln_1.bias.adam_m").type, DataType::f32);
  EXPECT_EQ(op_of(graph, "wpe.weight.adamw").attributes.at("weight_decay"), Attribute(0.1));
  EXPECT_EQ(op_of(graph, "h.0.ln_1.bias.adamw").attributes.at("weight_decay"), Attribute(0.0));
}

TEST(ShareState, SurvivesJson) {
  const Graph graph = graph_of(tied_gpt(4, 2));
  EXPECT_EQ(graph_from_json(to_json(graph)), graph);
  Graph part = graph_of(tied_gpt(1));
  part.gradient_groups = 1;
  part.tensors[tensor_named(part, "wte.weight")].initializer.first_element = 2;
  EXPECT_EQ(graph_from_json(to_json(part)), part);
  part.tensors[tensor_named(part, "wte.weight")].initializer = {};
  part.ops[0].cost.peer_bytes = 3;
  EXPECT_EQ(graph_from_json(to_json(part)), part);
}

// As the parameters of a sum.
TEST(ShareState, OneGradientMayBeThatOfTwoParameters) {
  GraphBuilder b;
  b.split_batch(1, 1, {0, 2});
  const Value first = b.parameter("first", {300}, {}), second = b.parameter("second", {300}, {});
  const Value loss = test::reduce(b, "loss", nn::add(b, "both", first, second));
  const Graph graph = b.finish(loss, AdamW{});
  EXPECT_EQ(op_of(graph, "first.use0.grad.exchange").reads, op_of(graph, "second.use0.grad.exchange").reads);
}

TEST(ShareState, NumbersOfRanksThatAreNoPowerOfTwoAreRefused) {
  Graph graph = graph_of(tied_gpt(2));
  graph.share.ranks = 3;
  test::expect_refused([&] { check(graph); }, "power of two");
}

}  // namespace
}  // namespace stowage
