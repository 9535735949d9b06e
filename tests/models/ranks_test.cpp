// The property that gradient groups are for: what N ranks compute of their shares of a batch, added in the
// tree's order, has the bits of one device that computes the whole batch.
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "stowage/evaluate.h"
#include "stowage/models.h"
#include "tests/support/expect_refused.h"
#include "tests/support/finite_difference.h"

namespace stowage {
namespace {

constexpr std::int32_t words = 13;
constexpr std::int64_t samples = 8, length = 5;

ModelConfig shared_model(std::int64_t gradient_groups) {
  ModelConfig config;
  config.layers = 2;
  config.width = 8;
  config.heads = 2;
  config.vocabulary = words;
  config.sequence = length;
  config.batch = samples;
  config.micro_batches = 8;
  config.gradient_groups = gradient_groups;
  config.dropout = 0.25;
  config.head_tokens = 3;
  return config;
}
ModelConfig pretraining(std::int64_t gradient_groups) {
  ModelConfig config = shared_model(gradient_groups);
  config.pretraining = true;
  return config;
}

// The whole batch's, whatever the rank. Targets count in an uneven part of the samples.
void fill_inputs(Evaluator& evaluator, const BuiltModel& model) {
  test::fill_tokens(evaluator, model.tokens.id, words, 1);
  test::fill_tokens(evaluator, model.targets.id, words, 2);
  auto* targets = test::elements_of<std::int32_t>(evaluator.value(model.targets.id));
  for (std::int64_t i = 0; i < samples * length; ++i)
    if (i % 3 == 0 || i / length == 1) targets[i] = -1;
  if (model.begins) {
    auto* begins = test::elements_of<std::int32_t>(evaluator.value(model.begins.id));
    for (std::int64_t i = 0; i < samples * length; ++i) begins[i] = i % length < 2 ? 0 : 2;
  }
  if (!model.seen) return;
  test::fill_tokens(evaluator, model.token_types.id, 2, 3);
  auto* seen = test::elements_of<std::int32_t>(evaluator.value(model.seen.id));
  for (std::int64_t i = 0; i < samples * length; ++i) seen[i] = i % length == i / length ? 0 : 1;
  auto* next = test::elements_of<std::int32_t>(evaluator.value(model.next_sentence.id));
  for (std::int64_t i = 0; i < samples; ++i) next[i] = i == 0 ? -1 : static_cast<std::int32_t>(i % 2);
}

// What one rank, or one device, computes before it updates anything.
struct Share {
  double loss = 0;
  // By parameter: the gradient of each of its uses, and their sum.
  std::map<std::string, std::vector<std::vector<float>>> uses;
  std::map<std::string, std::vector<float>> sum;
};

std::vector<float> floats(std::vector<std::byte>& value) {
  std::vector<float> all(value.size() / sizeof(float));
  std::memcpy(all.data(), value.data(), value.size());
  return all;
}

Share share_of(const ModelFamily& family, const ModelConfig& config) {
  GraphBuilder builder;
  const BuiltModel model = family.build(builder, config);
  const Graph graph = builder.finish_without_update(model.loss);
  EXPECT_EQ(graph.micro_batches, config.micro_batches / config.ranks);
  EXPECT_EQ(graph.gradient_groups, config.gradient_groups / config.ranks);
  Evaluator evaluator(graph, cpu_launch_table(), 5);
  fill_inputs(evaluator, model);
  evaluator.run(3, 0);
  Share share;
  share.loss = *test::elements_of<double>(evaluator.value(graph.loss));
  for (TensorId id = 0; id < graph.tensors.size(); ++id) {
    if (graph.tensor(id).kind != TensorKind::parameter) continue;
    const std::string& name = graph.tensor(id).name;
    for (const TensorId use : builder.use_gradients_of({id}))
      share.uses[name].push_back(floats(evaluator.value(use)));
    share.sum[name] = floats(evaluator.value(builder.gradient_of({id})));
  }
  return share;
}

std::vector<float> added(std::vector<float> a, const std::vector<float>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

// The ranks' shares, added as devices would: the losses, and each use of a parameter, in the tree of ranks.
Share sum_of_ranks(const ModelFamily& family, ModelConfig config, std::int64_t ranks) {
  config.ranks = ranks;
  std::vector<Share> shares;
  for (config.rank = 0; config.rank < ranks; ++config.rank) shares.push_back(share_of(family, config));
  const auto tree = [&](auto&& part, auto&& add) {
    const auto node = [&](auto&& self, std::size_t first, std::size_t count) {
      if (count == 1) return part(shares[first]);
      return add(self(self, first, count / 2), self(self, first + count / 2, count / 2));
    };
    return node(node, 0, shares.size());
  };
  Share whole;
  whole.loss = tree([](const Share& s) { return s.loss; }, [](double a, double b) { return a + b; });
  for (const auto& [name, uses] : shares[0].uses)
    for (std::size_t use = 0; use < uses.size(); ++use) {
      whole.uses[name].push_back(
          tree([&, key = name](const Share& s) { return s.uses.at(key)[use]; }, added));
      std::vector<float>& sum = whole.sum[name];
      sum = use == 0 ? whole.uses[name][0] : added(sum, whole.uses[name][use]);
    }
  return whole;
}

bool have_equal_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void expect_equal_bits(const Share& found, const Share& expected) {
  EXPECT_EQ(found.loss, expected.loss);
  ASSERT_EQ(found.sum.size(), expected.sum.size());
  for (const auto& [name, sum] : expected.sum) {
    EXPECT_TRUE(have_equal_bits(found.sum.at(name), sum)) << name;
    for (std::size_t use = 0; use < expected.uses.at(name).size(); ++use)
      EXPECT_TRUE(have_equal_bits(found.uses.at(name)[use], expected.uses.at(name)[use])) << name << use;
  }
}

void expect_ranks_have_the_bits_of_one_device(const ModelFamily& family, const ModelConfig& config) {
  const Share one = share_of(family, config);
  for (std::int64_t ranks = 2; ranks <= config.gradient_groups; ranks *= 2) {
    SCOPED_TRACE(::testing::Message() << config.gradient_groups << " groups, " << ranks << " ranks");
    expect_equal_bits(sum_of_ranks(family, config, ranks), one);
  }
}

TEST(Ranks, OfAGptHaveTheBitsOfOneDevice) {
  for (const std::int64_t groups : {2, 4, 8})
    expect_ranks_have_the_bits_of_one_device(gpt_family, shared_model(groups));
}

TEST(Ranks, OfALlamaHaveTheBitsOfOneDevice) {
  ModelConfig config = shared_model(4);
  config.key_heads = 1;
  config.head_norms = config.attention_bias = config.packed = true;
  config.tied = false;
  expect_ranks_have_the_bits_of_one_device(llama_family, config);
  config.table_rows = 5;  // blocks that do not divide the table
  expect_ranks_have_the_bits_of_one_device(llama_family, config);
  config.tied = true;
  expect_ranks_have_the_bits_of_one_device(llama_family, config);
}

TEST(Ranks, OfABertHaveTheBitsOfOneDevice) {
  for (const std::int64_t groups : {2, 8}) {
    expect_ranks_have_the_bits_of_one_device(bert_family, shared_model(groups));
    expect_ranks_have_the_bits_of_one_device(bert_family, pretraining(groups));
  }
}

// The loss is a forward op's, and the table's second use is a product of its own.
TEST(Ranks, OfAGptWithAllLogitsHaveTheBitsOfOneDevice) {
  ModelConfig config = shared_model(4);
  config.head_tokens = 0;
  expect_ranks_have_the_bits_of_one_device(gpt_family, config);
}

// So that the tests above would see another order of sums, other masks and other denominators.
TEST(Ranks, GroupsChangeTheBits) {
  const ModelConfig config = shared_model(1);
  const Share plain = share_of(gpt_family, config);
  for (const std::int64_t groups : {2, 4, 8}) {
    const Share other = share_of(gpt_family, shared_model(groups));
    EXPECT_NE(other.sum.at("wte.weight"), plain.sum.at("wte.weight")) << groups;
    EXPECT_NEAR(other.loss, plain.loss, 1e-6 * plain.loss);
  }
}

TEST(Ranks, TheTiedTableHasTwoUses) {
  const Share one = share_of(gpt_family, shared_model(4));
  EXPECT_EQ(one.uses.at("wte.weight").size(), 2U);
  EXPECT_EQ(one.uses.at("wpe.weight").size(), 1U);
}

TEST(Ranks, RefuseConfigsThatDoNotFit) {
  const auto refused = [](auto change, const std::string& message) {
    ModelConfig config = shared_model(4);
    change(config);
    test::expect_refused(
        [&] {
          GraphBuilder builder;
          gpt(builder, config);
        },
        message);
  };
  refused([](ModelConfig& c) { c.gradient_groups = 0; }, "gpt: gradient_groups is 0; give at least 1");
  refused([](ModelConfig& c) { c.gradient_groups = 3; },
          "gradient_groups 3 is no power of two that divides micro_batches 8");
  refused([](ModelConfig& c) { c.gradient_groups = 16; }, "gradient_groups 16 is no power of two");
  refused([](ModelConfig& c) { c.ranks = 0; }, "ranks is 0; give at least 1");
  refused([](ModelConfig& c) { c.ranks = 8; }, "gradient_groups 4 is not divisible by ranks 8");
  refused([](ModelConfig& c) { c.rank = c.ranks = 2; }, "rank is 2 of 2 ranks; ranks count from 0");
  refused([](ModelConfig& c) { c.rank = -1; }, "rank is -1 of 1 ranks");
}

}  // namespace
}  // namespace stowage
