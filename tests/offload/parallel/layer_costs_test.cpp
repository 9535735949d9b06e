#include "offload/parallel/layer_costs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "offload/parallel/search.h"
#include "offload/parallel/stage_table.h"
#include "tests/support/expect_refused.h"

namespace stowage {
namespace {

constexpr auto gather = CollectiveKind::gather, exchange = CollectiveKind::exchange;
constexpr auto tensor = GroupKind::tensor, data = GroupKind::data;
constexpr auto forward = Phase::forward, backward = Phase::backward, update = Phase::update;

constexpr double h = 1024, a = 16, f = 4096, s = 512, v = 1000, b = 3;
constexpr TransformerShape shape{1024, 16, 4096, 512, 1000};
constexpr TransformerShape all_rows{1024, 16, 4096, 512, 1000, 2, false};

// 4 devices a node, 1e12 operations and 1e10 bytes of device memory a second.
Cluster cluster_of_nodes(int nodes) {
  Cluster cluster;
  cluster.nodes = nodes;
  cluster.devices_per_node = 4;
  cluster.machine.flops_per_second = 1e12;
  cluster.machine.device_bytes_per_second = 1e10;
  cluster.inside.link = {1e9, 1e-3, true};
  cluster.network = {1e8, 4e8, 2e-3, PeerPath::apart};
  return cluster;
}

double received(const std::vector<LayerCollective>& all, GroupKind group, int devices) {
  double bytes = 0;
  for (const LayerCollective& each : all)
    if (each.group == group) bytes += each.bytes * (devices - 1) / devices;
  return bytes;
}

TEST(LayerCosts, BlockHasTheProductsOfThePaper) {
  const LayerWork one = forward_work(shape, LayerKind::block, 3, 1);
  EXPECT_DOUBLE_EQ(one.flops, 24 * b * s * h * h * (1 + s / (6 * h)));
  EXPECT_DOUBLE_EQ(forward_work(shape, LayerKind::block, 3, 4).flops, one.flops / 4);
  // Four products and their biases, two norms.
  EXPECT_DOUBLE_EQ(layer_parameters(shape, LayerKind::block, 1), 12 * h * h + 13 * h);
  EXPECT_DOUBLE_EQ(layer_parameters(shape, LayerKind::block, 4), (12 * h * h + 7 * h) / 4 + 6 * h);
}

TEST(LayerCosts, NarrowMlpHasFewerProducts) {
  TransformerShape narrow = shape;
  narrow.mlp_width = 1024;
  EXPECT_DOUBLE_EQ(forward_work(narrow, LayerKind::block, 3, 1).flops,
                   12 * b * s * h * h + 4 * b * s * s * h);
  EXPECT_DOUBLE_EQ(layer_parameters(narrow, LayerKind::block, 1), 6 * h * h + 10 * h);
}

TEST(LayerCosts, HeadAndEmbeddingHaveTheVocabulary) {
  EXPECT_DOUBLE_EQ(forward_work(shape, LayerKind::head, 3, 1).flops, 2 * b * s * h * v);
  EXPECT_DOUBLE_EQ(forward_work(shape, LayerKind::head, 3, 3).flops, 2 * b * s * h * 334);
  EXPECT_EQ(forward_work(shape, LayerKind::embedding, 3, 1).flops, 0);
  EXPECT_DOUBLE_EQ(layer_parameters(shape, LayerKind::embedding, 2), 500 * h + s * h);
  EXPECT_DOUBLE_EQ(layer_parameters(shape, LayerKind::head, 2), 500 * h + 2 * h);
}

TEST(LayerCosts, OtherOpsPassOverRowsAndScores) {
  const double whole = 16 * b * s * h, share = 18 * b * s * h + 10 * a * s * s * b;
  EXPECT_DOUBLE_EQ(forward_work(all_rows, LayerKind::block, 3, 4).bytes, whole + share / 4);
  EXPECT_DOUBLE_EQ(forward_work(shape, LayerKind::block, 3, 4).bytes, (whole + share) / 4);
  EXPECT_DOUBLE_EQ(compute_seconds({3e12, 5e10}, cluster_of_nodes(1).machine), 3 + 5);
}

TEST(LayerCosts, ActivationsAreThoseOfThePaper) {
  for (const double t : {1.0, 2.0, 4.0}) {
    const int split = static_cast<int>(t);
    EXPECT_DOUBLE_EQ(activation_bytes(all_rows, LayerKind::block, 3, split, false),
                     s * b * h * (10 + 24 / t + 5 * a * s / (h * t)));
    // Only what is gathered is there in full.
    EXPECT_DOUBLE_EQ(activation_bytes(shape, LayerKind::block, 3, split, false),
                     s * b * h * (4 + 30 / t + 5 * a * s / (h * t)));
    EXPECT_DOUBLE_EQ(activation_bytes(all_rows, LayerKind::block, 3, split, true), 2 * s * b * h);
    EXPECT_DOUBLE_EQ(activation_bytes(shape, LayerKind::block, 3, split, true), 2 * s * b * h / t);
  }
  EXPECT_DOUBLE_EQ(activation_bytes(shape, LayerKind::head, 3, 2, false), 2 * b * s * (h + h / 2 + 500));
  EXPECT_DOUBLE_EQ(activation_bytes(shape, LayerKind::embedding, 3, 2, true), b * s * h / 2);
}

TEST(LayerCosts, TensorCollectivesStandRoundEachPairOfProducts) {
  const double rows = 2 * b * s * h;
  const std::vector<LayerCollective> once{{"attention.qkv", forward, gather, rows, tensor},
                                          {"attention.projection", forward, exchange, rows, tensor},
                                          {"mlp.up", forward, gather, rows, tensor},
                                          {"mlp.down", forward, exchange, rows, tensor},
                                          {"mlp.down", backward, gather, rows, tensor},
                                          {"mlp.up", backward, exchange, rows, tensor},
                                          {"attention.projection", backward, gather, rows, tensor},
                                          {"attention.qkv", backward, exchange, rows, tensor}};
  EXPECT_EQ(layer_collectives(shape, LayerKind::block, {1, 4, 3}), once);
  EXPECT_EQ(layer_collectives(all_rows, LayerKind::block, {1, 4, 3}), once);
  EXPECT_DOUBLE_EQ(received(once, tensor, 4), 2 * 8 * b * s * h * 3 / 4);

  std::vector<LayerCollective> replayed = once;
  for (std::size_t i = 0; i < 4; ++i) {
    LayerCollective again = once[i];
    again.phase = backward;
    again.replay = true;
    replayed.insert(replayed.begin() + static_cast<std::ptrdiff_t>(4 + i), again);
  }
  EXPECT_EQ(layer_collectives(shape, LayerKind::block, {1, 4, 3, true}), replayed);
  EXPECT_TRUE(layer_collectives(shape, LayerKind::block, {1, 1, 3, true}).empty());
}

TEST(LayerCosts, TensorCollectivesOfEmbeddingAndHead) {
  const double rows = 2 * b * s * h, loss = 12 * b * s;
  EXPECT_EQ(layer_collectives(shape, LayerKind::embedding, {1, 4, 3, true}),
            (std::vector<LayerCollective>{{"embedding", forward, exchange, rows, tensor},
                                          {"embedding", backward, gather, rows, tensor}}));
  EXPECT_EQ(layer_collectives(shape, LayerKind::head, {1, 4, 3}),
            (std::vector<LayerCollective>{{"head", forward, gather, rows, tensor},
                                          {"head.loss", forward, exchange, loss, tensor},
                                          {"head.loss", forward, gather, loss, tensor},
                                          {"head", backward, exchange, rows, tensor}}));
}

TEST(LayerCosts, WholeWeightsAreExchangedOnceAStep) {
  const auto all = layer_collectives(shape, LayerKind::block, {3, 1, 1, true, WeightKeeping::whole});
  ASSERT_EQ(all.size(), 8U);
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_TRUE(all[i].once_a_step);
    EXPECT_EQ(all[i].group, data);
    EXPECT_EQ(all[i].phase, i < 4 ? backward : update);
    EXPECT_EQ(all[i].kind, i < 4 ? exchange : gather);
  }
  EXPECT_EQ(all[0], (LayerCollective{"mlp.down", backward, exchange, 2 * (f * h + h), data, false, true}));
  EXPECT_EQ(all[4].op, "attention.qkv");
  EXPECT_DOUBLE_EQ(received(all, data, 3), 2 * 2 * (12 * h * h + 13 * h) * 2 / 3);
}

TEST(LayerCosts, SharesOfWeightsAreGatheredInEachMicroBatch) {
  const LayerSpread spread{3, 1, 1, false, WeightKeeping::shares};
  const double qkv = 2 * (3 * h * h + 3 * h + 2 * h), table = 2 * (v * h + s * h);
  const auto all = layer_collectives(shape, LayerKind::block, spread);
  ASSERT_EQ(all.size(), 12U);
  EXPECT_EQ(all[0], (LayerCollective{"attention.qkv", forward, gather, qkv, data}));
  EXPECT_EQ(all[10], (LayerCollective{"attention.qkv", backward, gather, qkv, data}));
  EXPECT_EQ(all[11], (LayerCollective{"attention.qkv", backward, exchange, qkv, data}));
  EXPECT_DOUBLE_EQ(received(all, data, 3), 3 * 2 * (12 * h * h + 13 * h) * 2 / 3);
  EXPECT_EQ(layer_collectives(shape, LayerKind::embedding, spread),
            (std::vector<LayerCollective>{{"embedding", forward, gather, table, data},
                                          {"embedding", backward, gather, table, data},
                                          {"embedding", backward, exchange, table, data}}));
}

TEST(LayerCosts, ReplayGathersSharesForBackwardToo) {
  const auto all = layer_collectives(shape, LayerKind::block, {3, 2, 1, true, WeightKeeping::shares});
  int gathers = 0, exchanges = 0;
  for (const LayerCollective& each : all) {
    if (each.group != data || each.phase == forward) continue;
    EXPECT_EQ(each.replay, each.kind == gather) << each.op;
    ++(each.kind == gather ? gathers : exchanges);
  }
  EXPECT_EQ(gathers, 4);
  EXPECT_EQ(exchanges, 4);
}

TEST(LayerCosts, SecondsOfCollectivesByPhase) {
  const Cluster cluster = cluster_of_nodes(2);
  const LayerSpread spread{2, 2, 3};
  const std::vector<LayerCollective> all{{"x", forward, gather, 2e9, tensor},
                                         {"x", backward, exchange, 4e9, tensor},
                                         {"x", backward, exchange, 2e9, data},
                                         {"x", backward, exchange, 8e9, data, false, true},
                                         {"x", update, gather, 6e9, data, false, true}};
  EXPECT_DOUBLE_EQ(collectives_seconds(all, forward, spread, cluster), 1.001);
  EXPECT_DOUBLE_EQ(collectives_seconds(all, backward, spread, cluster), 2.001 + 1.001);
  EXPECT_DOUBLE_EQ(step_collectives_seconds(all, spread, cluster), 4.001 + 3.001);
  // In another node each.
  EXPECT_DOUBLE_EQ(step_collectives_seconds(all, {2, 4, 3}, cluster), 4e9 / 1e8 + 3e9 / 1e8 + 2 * 2e-3);
}

TEST(LayerCosts, LayerTakesItsWorkAndItsCollectives) {
  const Cluster cluster = cluster_of_nodes(1);
  const double work = compute_seconds(forward_work(shape, LayerKind::block, 3, 2), cluster.machine);
  const double rows = 1e-3 + 2 * b * s * h / 2 / 1e9;  // a gather or an exchange of them
  LayerSpread spread{2, 2, 3};
  const LayerCost kept = layer_cost(shape, LayerKind::block, spread, {}, cluster);
  EXPECT_DOUBLE_EQ(kept.forward_seconds, work + 4 * rows);
  EXPECT_DOUBLE_EQ(kept.backward_seconds, 2 * work + 4 * rows);
  const double parameters = layer_parameters(shape, LayerKind::block, 2);
  // Four exchanges and four gathers of half of the weights; of half of the state 24 bytes and a weight.
  EXPECT_DOUBLE_EQ(kept.step_seconds, 8e-3 + 2 * 2 * parameters / 2 / 1e9 + 26 * parameters / 2 / 1e10);
  EXPECT_DOUBLE_EQ(kept.bytes, parameters * (2 + 4 + 12 / 2));
  EXPECT_DOUBLE_EQ(kept.bytes_in_flight, activation_bytes(shape, LayerKind::block, 3, 2, false));

  spread.rebuilt = true;
  const LayerCost rebuilt = layer_cost(shape, LayerKind::block, spread, {}, cluster);
  EXPECT_DOUBLE_EQ(rebuilt.forward_seconds, work + 4 * rows);
  EXPECT_DOUBLE_EQ(rebuilt.backward_seconds, 3 * work + 8 * rows);
  EXPECT_DOUBLE_EQ(rebuilt.bytes_in_flight, b * s * h);
  EXPECT_DOUBLE_EQ(rebuilt.step_seconds, kept.step_seconds);

  spread.weights = WeightKeeping::shares;
  const LayerCost shares = layer_cost(shape, LayerKind::block, spread, {}, cluster);
  EXPECT_DOUBLE_EQ(shares.bytes, parameters * (2 + 4 + 12) / 2);
  EXPECT_DOUBLE_EQ(shares.step_seconds, 26 * parameters / 2 / 1e10);
  EXPECT_NEAR(shares.forward_seconds + shares.backward_seconds,
              rebuilt.forward_seconds + rebuilt.backward_seconds + 12e-3 + 3 * 2 * parameters / 2 / 1e9,
              1e-9);
}

TEST(LayerCosts, ActivationsCrossACutInSharesOrAreGatheredBehindIt) {
  const Link between{1e8, 2e-3, true};
  const PeerCurve inside{{1e9, 1e-3, true}};
  EXPECT_DOUBLE_EQ(cut_bytes(shape, 3), 2 * b * s * h);
  EXPECT_DOUBLE_EQ(send_seconds(shape, 3, 4, between, inside), 2e-3 + 2 * b * s * h / 4 / 1e8);
  EXPECT_DOUBLE_EQ(send_seconds(all_rows, 3, 4, between, inside),
                   2e-3 + 2 * b * s * h / 4 / 1e8 + 1e-3 + 2 * b * s * h * 3 / 4 / 1e9);
  EXPECT_DOUBLE_EQ(send_seconds(all_rows, 3, 1, between, inside), 2e-3 + 2 * b * s * h / 1e8);
}

TransformerQuestion small_question(int nodes) {
  TransformerQuestion question;
  question.shape = shape;
  question.blocks = 4;
  question.micro_batch_samples = 4;
  question.micro_batches = 6;
  question.cluster = cluster_of_nodes(nodes);
  return question;
}

TEST(LayerCosts, CostsHaveEveryVariantThatFits) {
  TransformerQuestion question = small_question(2);
  const ParallelCosts costs = parallel_costs_of(question);
  ASSERT_EQ(costs.layers.size(), 6U);
  EXPECT_EQ(costs.layers[0].name, "embedding");
  EXPECT_EQ(costs.layers[1].name, "block 0");
  EXPECT_EQ(costs.layers[5].name, "head");
  EXPECT_EQ(costs.batch, 24);
  // parts of 1, 2, 4 and split of 1, 2, 4, 8, at most 8 devices.
  const std::vector<std::string> names{"1x1", "2x1", "4x1", "1x2", "2x2", "4x2", "1x4", "2x4", "1x8"};
  ASSERT_EQ(costs.layers[0].variants.size(), names.size());
  ASSERT_EQ(costs.layers[1].variants.size(), 2 * names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(costs.layers[0].variants[i].name, names[i]);
    EXPECT_EQ(costs.layers[1].variants[2 * i].name, names[i]);
    EXPECT_EQ(costs.layers[1].variants[2 * i + 1].name, names[i] + " rebuilt");
  }
  const LayerVariant& variant = costs.layers[2].variants[9];
  EXPECT_EQ(variant.name, "2x2 rebuilt");
  const LayerCost cost = layer_cost(shape, LayerKind::block, {2, 2, 2, true}, {}, question.cluster);
  EXPECT_EQ(variant.parts, 2);
  EXPECT_EQ(variant.split, 2);
  EXPECT_EQ(variant.forward_seconds, cost.forward_seconds);
  EXPECT_EQ(variant.backward_seconds, cost.backward_seconds);
  EXPECT_EQ(static_cast<double>(variant.bytes), cost.bytes);
  EXPECT_EQ(static_cast<double>(variant.bytes_in_flight), cost.bytes_in_flight);
  // The network: all four devices of a node share it.
  EXPECT_EQ(costs.link.bytes_per_second, 1e8);
  EXPECT_NEAR(static_cast<double>(variant.exchanged_bytes) / costs.exchange_bytes_per_second,
              cost.step_seconds, 1.0 / 1e8);
  EXPECT_EQ(static_cast<double>(costs.cut_bytes.at(4)), cut_bytes(shape, 4));

  question.shape.heads = 1;
  EXPECT_EQ(parallel_costs_of(question).layers[0].variants.size(), 3U);
  question = small_question(1);
  EXPECT_EQ(parallel_costs_of(question).link.bytes_per_second, 1e9);
}

LayerKind kind_of(int layer, int layers) {
  if (layer == 0) return LayerKind::embedding;
  return layer == layers - 1 ? LayerKind::head : LayerKind::block;
}

// What a step takes on stages of as many layers each, all of one spread.
double step_by_hand(const TransformerQuestion& question, const LayerSpread& spread, int stages) {
  const Link link = parallel_costs_of(question).link;
  const int layers = question.blocks + 2;
  const double send = 2 * send_seconds(question.shape, spread.samples, spread.split, link, {});
  double way = 0, pace = stages > 1 ? send : 0, tail = 0;
  for (int stage = 0; stage < stages; ++stage) {
    double own = 0, behind = 0;
    for (int layer = stage * layers / stages; layer < (stage + 1) * layers / stages; ++layer) {
      const LayerCost cost = layer_cost(question.shape, kind_of(layer, layers), spread, {}, question.cluster);
      own += cost.forward_seconds + cost.backward_seconds;
      behind += cost.step_seconds;
    }
    way += own + (stage + 1 < stages ? send : 0);
    pace = std::max(pace, own);
    tail = std::max(tail, behind);
  }
  return way + static_cast<double>(question.micro_batches - 1) * pace + tail;
}

TEST(LayerCosts, SearchesAnswerTheQuestion) {
  const TransformerQuestion question = small_question(1);
  const ParallelCosts costs = parallel_costs_of(question);
  StageTable table(costs);
  SearchQuestion asked = question_of(costs);
  asked.use_all_devices = true;
  const GridsAnswer grids = search_grids(table, asked, 100);
  int judged = 0;
  for (const GridAnswer& grid : grids.grids) {
    const StageLayout layout = table.layouts()[static_cast<std::size_t>(grid.layout)];
    ASSERT_EQ(layout.devices * grid.stages, 4);
    const LayerSpread spread{layout.parts, layout.split, question.micro_batch_samples / layout.parts};
    const double seconds = grid.answer.best->step_seconds(costs.micro_batches);
    const double by_hand = step_by_hand(question, spread, grid.stages);
    if (grid.stages == 1) {
      EXPECT_NEAR(seconds, by_hand, 1e-6) << layout.parts << " x " << layout.split;
      ++judged;
    }
    EXPECT_LE(seconds, by_hand + 1e-6);
  }
  EXPECT_EQ(judged, 3);  // 1x4, 2x2, 4x1
}

TEST(LayerCosts, LittleMemoryIsAnsweredByRebuilding) {
  TransformerQuestion question = small_question(1);
  question.cluster.devices_per_node = 1;
  const auto rebuilds = [&](Bytes memory) {
    question.memory = memory;
    const ParallelCosts costs = parallel_costs_of(question);
    StageTable table(costs);
    const SearchAnswer answer = search_pipeline(table, question_of(costs));
    if (!answer.best) return false;
    int rebuilt = 0;
    const std::vector<StageDetail> details = table.details(*answer.best);
    for (std::size_t stage = 0; stage < details.size(); ++stage) {
      for (std::size_t i = 0; i < details[stage].variants.size(); ++i) {
        const std::size_t layer = static_cast<std::size_t>(answer.best->stages[stage].first) + i;
        const auto variant = static_cast<std::size_t>(details[stage].variants[i]);
        rebuilt += costs.layers[layer].variants[variant].name.ends_with("rebuilt");
      }
    }
    return rebuilt > 0;
  };
  const std::optional<LeastMemory> least = least_memory(parallel_costs_of(question), false);
  ASSERT_TRUE(least);
  EXPECT_FALSE(rebuilds(unlimited));
  EXPECT_TRUE(rebuilds(least->bytes));
}

TEST(LayerCosts, RefusesSizesItCannotTake) {
  const auto refused = [](const std::string& words, const auto& change) {
    TransformerQuestion question = small_question(1);
    change(question);
    test::expect_refused([&] { parallel_costs_of(question); }, words);
  };
  refused("'hidden' is 0", [](TransformerQuestion& q) { q.shape.hidden = 0; });
  refused("'heads' is 7; give a divisor of 'hidden'", [](TransformerQuestion& q) { q.shape.heads = 7; });
  refused("'mlp_width' is -1", [](TransformerQuestion& q) { q.shape.mlp_width = -1; });
  refused("'sequence' is 1000000000000", [](TransformerQuestion& q) { q.shape.sequence = 1000000000000; });
  refused("'vocabulary' is 0", [](TransformerQuestion& q) { q.shape.vocabulary = 0; });
  refused("'element_bytes' is 16", [](TransformerQuestion& q) { q.shape.element_bytes = 16; });
  refused("'rows_in_shares' is false", [](TransformerQuestion& q) { q.shape.rows_in_shares = false; });
  refused("'blocks' is 1000000000", [](TransformerQuestion& q) { q.blocks = 1000000000; });
  refused("'micro_batch_samples' is 0", [](TransformerQuestion& q) { q.micro_batch_samples = 0; });
  refused("'micro_batches' is 0", [](TransformerQuestion& q) { q.micro_batches = 0; });
  refused("'parameter_bytes.gradient' is nan", [](TransformerQuestion& q) {
    q.parameter_bytes.gradient = std::numeric_limits<double>::quiet_NaN();
  });
  refused("'parameter_bytes.state' is -1", [](TransformerQuestion& q) { q.parameter_bytes.state = -1; });
  refused("'nodes' is 0", [](TransformerQuestion& q) { q.cluster.nodes = 0; });
  refused("'memory_bytes' is 0", [](TransformerQuestion& q) { q.memory = 0; });
  // Sizes that are fine one by one, and too much together.
  refused("give at most", [](TransformerQuestion& q) {
    q.shape.hidden = q.shape.mlp_width = q.shape.sequence = std::int64_t{1} << 26;
    q.micro_batch_samples = 1 << 20;
    q.cluster.machine.flops_per_second = q.cluster.machine.device_bytes_per_second = 1e18;
    q.cluster.inside.link.bytes_per_second = 1e18;
  });
}

}  // namespace
}  // namespace stowage
