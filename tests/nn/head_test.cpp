#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "kernels/math/bfloat16.h"
#include "kernels/math/float16.h"
#include "src/base/parallel_for.h"
#include "stowage/nn.h"
#include "tests/support/finite_difference.h"
#include "tests/support/graph_queries.h"

namespace stowage {
namespace {

struct HeadSizes {
  std::int64_t tokens = 12, width = 5;
  std::int64_t vocabulary = 150, stored = 160;  // rows of the weight that count, and all of them
  std::uint32_t micro_batches = 1;
  bool tied = false;  // x is the embedding of the head's weight
};

// A head over an embedding. `block`: rows of a block; 0: the weight is whole, and the head linear and
// cross_entropy. Without `tied`, tokens are all different, so that the table's gradient is that of x.
class HeadModel {
 public:
  HeadModel(DataType type, const HeadSizes& sizes, std::int64_t block) : sizes_(sizes), builder_(type) {
    if (sizes.micro_batches > 1) builder_.split_batch(sizes.micro_batches);
    tokens_ = builder_.input("tokens", {sizes.tokens});
    targets_ = builder_.input("targets", {sizes.tokens});
    if (!sizes.tied) table_ = builder_.parameter("table", {sizes.tokens, sizes.width}, {0, 1});
    const std::int64_t rows = block == 0 ? sizes.stored : block;
    for (std::int64_t first = 0; first < sizes.vocabulary; first += rows) {
      const bool last = first + rows >= sizes.vocabulary;  // has all rows of padding
      blocks_.push_back({builder_.parameter("weight." + std::to_string(first),
                                            {last ? sizes.stored - first : rows, sizes.width}, {}),
                         first, sizes.vocabulary});
    }
    graph_ = builder_.finish_without_update(block == 0 ? whole_head() : head_in_blocks());
  }

  const Graph& graph() const { return graph_; }

  Evaluator evaluator() const {
    Evaluator evaluator(graph_, cpu_launch_table(), 3);
    const DataType type = builder_.work_type();
    std::vector<std::byte> weight(static_cast<std::size_t>(sizes_.stored * sizes_.width) * size_of(type));
    initialize({"weight", type, {sizes_.stored, sizes_.width}, TensorKind::parameter, {0, 1}}, 3, weight);
    auto rows = weight.cbegin();
    for (const nn::TableBlock& block : blocks_) {
      std::vector<std::byte>& value = evaluator.value(block.rows.id);
      std::copy_n(rows, value.size(), value.begin());
      rows += static_cast<std::ptrdiff_t>(value.size());
    }
    test::fill_tokens(evaluator, tokens_.id, static_cast<std::int32_t>(sizes_.vocabulary), 1);
    test::fill_tokens(evaluator, targets_.id, static_cast<std::int32_t>(sizes_.vocabulary), 2);
    auto* tokens = test::elements_of<std::int32_t>(evaluator.value(tokens_.id));
    auto* targets = test::elements_of<std::int32_t>(evaluator.value(targets_.id));
    if (!sizes_.tied) std::iota(tokens, tokens + sizes_.tokens, 0);
    // A quarter of the batch has no target at all.
    for (std::int64_t i = 0; i < sizes_.tokens; ++i)
      if (i < sizes_.tokens / 4 || i % 3 == 1) targets[i] = -1;
    return evaluator;
  }

  // Returns the loss, then the gradients of x and of all of the weight. `place`: the tensor in whose bytes
  // each tensor lies.
  std::vector<std::vector<std::byte>> results(Evaluator& evaluator,
                                              const std::vector<TensorId>& place = {}) const {
    const auto value = [&](TensorId id) { return evaluator.value(place.empty() ? id : place[id]); };
    std::vector<std::byte> weight;
    for (const nn::TableBlock& block : blocks_) {
      const std::vector<std::byte> rows = value(builder_.gradient_of(block.rows));
      weight.insert(weight.end(), rows.begin(), rows.end());
    }
    return {value(graph_.loss), sizes_.tied ? std::vector<std::byte>{} : value(builder_.gradient_of(table_)),
            weight};
  }
  std::vector<std::vector<std::byte>> results() const {
    Evaluator evaluator = this->evaluator();
    evaluator.run(0, 0, 8);
    return results(evaluator);
  }

 private:
  HeadSizes sizes_;
  GraphBuilder builder_;
  Value tokens_, targets_, table_;
  std::vector<nn::TableBlock> blocks_;
  Graph graph_;

  template <class Body>
  void for_micro_batches(const std::string& unit, Body body) {
    for (std::uint32_t part = 0; part < sizes_.micro_batches; ++part) {
      builder_.begin_unit(unit, part);
      body(part);
    }
  }

  Value whole_head() {
    std::vector<Value> x(sizes_.micro_batches);
    Value loss;
    const Value table = sizes_.tied ? blocks_[0].rows : table_;
    for_micro_batches("x", [&](auto part) { x[part] = nn::embedding(builder_, "x", tokens_, table, {}, 1); });
    for_micro_batches("head", [&](auto part) {
      const Value logits = nn::linear(builder_, "head", x[part], blocks_[0].rows, {}, true);
      loss = builder_.sum_loss(nn::cross_entropy(builder_, "loss", logits, targets_, sizes_.vocabulary));
    });
    return loss;
  }

  Value head_in_blocks() {
    std::vector<Value> x(sizes_.micro_batches), statistics(sizes_.micro_batches);
    Value loss;
    for (std::size_t i = 0; i < (sizes_.tied ? blocks_.size() : 1); ++i) {
      const std::string name = "x." + std::to_string(i);
      for_micro_batches(name, [&](auto part) {
        x[part] = sizes_.tied ? nn::embedding_rows(builder_, name, tokens_, blocks_[i], x[part])
                              : nn::embedding(builder_, name, tokens_, table_, {}, 1);
      });
    }
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      const std::string name = "head." + std::to_string(i);
      for_micro_batches(name, [&](auto part) {
        statistics[part] =
            nn::head_statistics(builder_, name, x[part], blocks_[i], targets_, statistics[part]);
        if (i + 1 == blocks_.size())
          loss = builder_.sum_loss(nn::head_loss(builder_, "loss", statistics[part], targets_));
      });
    }
    return loss;
  }
};

template <class T>
std::vector<double> elements_in(const std::vector<std::byte>& bytes) {
  std::vector<double> values;
  for (std::size_t i = 0; i < bytes.size(); i += sizeof(T)) {
    T value;
    std::memcpy(&value, bytes.data() + i, sizeof(T));
    if constexpr (sizeof(T) == 2)
      values.push_back(static_cast<double>(static_cast<float>(value)));
    else
      values.push_back(value);
  }
  return values;
}

void expect_all_near(const std::vector<double>& found, const std::vector<double>& right, double bound) {
  ASSERT_EQ(found.size(), right.size());
  for (std::size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], right[i], bound) << i;
}

// The loss and the gradients are below 8, sums of at most 160 terms. `unit`: what one rounding of f32 or f64
// adds to 1; `narrow_unit`: of the work type where that is narrower.
template <class T>
void expect_the_whole_heads(DataType type, double unit, double narrow_unit = 0) {
  for (const bool tied : {false, true}) {
    const auto whole = HeadModel(type, {.tied = tied}, 0).results();
    for (const std::int64_t block : {64, 50, 47, 200}) {
      for (const std::uint32_t parts : {1U, 2U, 4U}) {
        SCOPED_TRACE(testing::Message() << parts << " micro-batches, " << block << " rows, tied: " << tied);
        const auto found = HeadModel(type, {.micro_batches = parts, .tied = tied}, block).results();
        expect_all_near(elements_in<double>(found[0]), elements_in<double>(whole[0]), 512 * unit);
        for (const std::size_t gradient : {1U, 2U})
          expect_all_near(elements_in<T>(found[gradient]), elements_in<T>(whole[gradient]),
                          512 * unit + 16 * narrow_unit);
      }
    }
  }
}

TEST(Head, InBlocksIsTheWholeHeadInF64) { expect_the_whole_heads<double>(DataType::f64, 0x1p-53); }
TEST(Head, InBlocksIsTheWholeHeadInF32) { expect_the_whole_heads<float>(DataType::f32, 0x1p-24); }
TEST(Head, InBlocksIsTheWholeHeadInBf16) {
  expect_the_whole_heads<Bfloat16>(DataType::bf16, 0x1p-24, 0x1p-8);
}
TEST(Head, InBlocksIsTheWholeHeadInF16) { expect_the_whole_heads<Float16>(DataType::f16, 0x1p-24, 0x1p-11); }

// Sizes that threads share: several runs of rows, and several tiles of the products.
constexpr HeadSizes large_head{600, 70, 150, 160, 1, true};
constexpr DataType head_types[] = {DataType::f32, DataType::bf16, DataType::f16};

TEST(Head, HasTheSameBitsForAnyThreadCount) {
  for (const DataType type : head_types) {
    const HeadModel model(type, large_head, 64);
    set_parallel_threads(1);
    const auto one = model.results();
    for (const int threads : {2, 3}) {
      set_parallel_threads(threads);
      EXPECT_TRUE(model.results() == one) << to_string(type) << ", " << threads << " threads";
    }
    set_parallel_threads(0);
  }
}

bool is_read_after(const Graph& graph, OpId op, TensorId tensor) {
  return std::any_of(graph.ops.begin() + op + 1, graph.ops.end(), [&](const Op& later) {
    return std::find(later.reads.begin(), later.reads.end(), tensor) != later.reads.end();
  });
}

// Runs the evaluator's graph; each op writes in place where it may. Returns the tensor in whose bytes each
// tensor lies.
std::vector<TensorId> run_in_place(Evaluator& evaluator, double loss_scale) {
  const Graph& graph = evaluator.graph();
  std::vector<TensorId> place(graph.tensors.size());
  std::iota(place.begin(), place.end(), TensorId{0});
  const auto operands = [&](const std::vector<TensorId>& ids) {
    std::vector<Operand> all;
    for (const TensorId id : ids) all.push_back({evaluator.value(place[id]).data(), &graph.tensors[id]});
    return all;
  };
  for (OpId i = 0; i < graph.ops.size(); ++i) {
    const Op& op = graph.ops[i];
    for (const Alias& alias : op.may_alias)
      if (!is_read_after(graph, i, op.reads[alias.read]))
        place[op.writes[alias.write]] = place[op.reads[alias.read]];
    const std::vector<Operand> reads = operands(op.reads), writes = operands(op.writes);
    cpu_launch_table().find(op)({&op, reads, writes, {.seed = 3, .loss_scale = loss_scale}, nullptr});
  }
  return place;
}

// Rows of the embedding, statistics and the gradient of x go from block to block in the same bytes.
TEST(Head, HasTheSameBitsInPlace) {
  for (const DataType type : head_types) {
    const HeadModel model(type, large_head, 64);
    Evaluator evaluator = model.evaluator();
    const std::vector<TensorId> place = run_in_place(evaluator, 8);
    for (const auto& [last, first] :
         {std::pair("x.2", "x.0"), {"head.2", "head.0"}, {"x.2.grad.2", "x.2.grad"}})
      EXPECT_EQ(place[test::tensor_named(model.graph(), last)], test::tensor_named(model.graph(), first));
    EXPECT_TRUE(model.results(evaluator, place) == model.results()) << to_string(type);
  }
}

struct HeadCheck {
  test::GradientCheck check;
  GraphBuilder& b = check.builder;
  Value targets = check.integers("targets", {7}, 8);
  // Blocks of 4, 3 and 3 rows, of which the last two are padding.
  nn::TableBlock blocks[3] = {{check.variable("first", {4, 5}), 0, 8},
                              {check.variable("second", {3, 5}), 4, 8},
                              {check.variable("third", {3, 5}), 7, 8}};

  Value statistics(std::size_t block, Value x, Value before) {
    return nn::head_statistics(b, "head." + std::to_string(block), x, blocks[block], targets, before);
  }
  Value statistics(Value x) { return statistics(2, x, statistics(1, x, statistics(0, x, {}))); }
  void run(Value statistics) {
    check.run_loss(nn::head_loss(b, "loss", statistics, targets), {}, [&](Evaluator& evaluator) {
      auto* target = test::elements_of<std::int32_t>(evaluator.value(targets.id));
      target[2] = target[6] = -1;
      target[3] = 7;  // the last row that counts
    });
  }
};

TEST(Head, GradientsMatchDifferences) {
  for (const bool is_activation : {false, true}) {
    HeadCheck of;
    const Value x = of.check.variable("x", {7, 5});
    of.run(of.statistics(is_activation ? nn::gelu(of.b, "gelu", x, nn::Gelu::tanh) : x));
  }
}

// Each block has the gradients of both uses.
TEST(Head, TiedGradientsMatchDifferences) {
  HeadCheck of;
  const Value tokens = of.check.integers("tokens", {7}, 8);
  Value x;
  for (const nn::TableBlock& block : of.blocks)
    x = nn::embedding_rows(of.b, "x." + std::to_string(block.first), tokens, block, x);
  of.run(of.statistics(nn::gelu(of.b, "gelu", x, nn::Gelu::tanh)));
  for (const nn::TableBlock& block : of.blocks) EXPECT_EQ(of.b.use_gradients_of(block.rows).size(), 2U);
}

// The second block's x is a sum, whose gradient is the first one's too, and a bias's: it is not written over.
TEST(Head, AddsToAGradientThatOthersRead) {
  HeadCheck of;
  const Value x = nn::gelu(of.b, "x", of.check.variable("in", {7, 5}), nn::Gelu::tanh);
  const Value before = of.statistics(0, x, {});
  const Value y = nn::add(of.b, "y", x, of.check.variable("bias", {7, 5}));
  of.run(of.statistics(2, y, of.statistics(1, y, before)));
}

}  // namespace
}  // namespace stowage
