// Coded activations: which values are coded, that forward does not change, and that backward is that of the
// values that the codec gives back.
#include "stowage/coded_activations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <span>

#include "kernels/cpu/codec.h"
#include "kernels/math/bfloat16.h"
#include "kernels/math/float16.h"
#include "stowage/evaluate.h"
#include "stowage/models.h"
#include "tests/support/expect_refused.h"
#include "tests/support/finite_difference.h"
#include "tests/support/graph_queries.h"

namespace stowage {
namespace {

using test::expect_refused;
using test::op_named;
using test::tensor_named;

template <class T>
std::span<T> elements_of(std::vector<std::byte>& value) {
  return {test::elements_of<T>(value), value.size() / sizeof(T)};
}

constexpr std::int32_t vocabulary = 31;
constexpr std::uint64_t seed = 5;

// Of 1,024 tokens, so that results of products have 128 KiB or more in f32.
ModelConfig config_of(const ModelFamily& family, std::optional<CodeBits> bits) {
  ModelConfig config{
      .layers = 2, .width = 32, .heads = 2, .vocabulary = vocabulary, .sequence = 32, .batch = 32};
  config.dropout = 0.1;
  config.code_activations = bits;
  if (&family == &bert_family) config.pretraining = true;
  if (&family == &llama_family || &family == &qwen3_family) config.key_heads = 1;
  if (&family == &qwen3_family) config.head_norms = true;
  return config;
}

Graph graph_of(const ModelFamily& family, std::optional<CodeBits> bits, DataType type = DataType::f32,
               const std::function<void(ModelConfig&)>& change = {}) {
  GraphBuilder builder(type);
  ModelConfig config = config_of(family, bits);
  if (change) change(config);
  return builder.finish(family.build(builder, config).loss, {});
}

void fill_inputs(Evaluator& evaluator) {
  const Graph& graph = evaluator.graph();
  for (TensorId id = 0; id < graph.tensors.size(); ++id) {
    const Tensor& tensor = graph.tensor(id);
    if (tensor.kind != TensorKind::input) continue;
    const bool is_token = tensor.name == "tokens" || tensor.name == "targets";
    test::fill_tokens(evaluator, id, is_token ? vocabulary : 2, id);
    if (tensor.name == "begins")  // a document at each 16 tokens
      for (std::size_t i = 0; std::int32_t & begin : elements_of<std::int32_t>(evaluator.value(id)))
        begin = static_cast<std::int32_t>(i++ % 32 / 16 * 16);
    if (tensor.name == "seen")
      for (std::int32_t& seen : elements_of<std::int32_t>(evaluator.value(id))) seen = 1;
  }
}

bool is_coded(const Graph& graph, TensorId id) {
  return std::any_of(graph.ops.begin(), graph.ops.end(),
                     [&](const Op& op) { return op.kernel == "encode" && op.reads.front() == id; });
}

const ModelFamily* const families[] = {&gpt_family, &bert_family, &llama_family, &qwen3_family};

// The plain meaning of coded activations: runs forward of the step without codes, puts each value whose name
// the coded step encodes through the codec, makes what follows from them anew, and runs backward.
class PlainCoding {
 public:
  PlainCoding(const Graph& plain, const Graph& coded, CodeBits bits) : evaluator_(plain, table_, seed) {
    fill_inputs(evaluator_);
    for (const Op& op : plain.ops)
      if (op.phase == Phase::forward) run(op);
    for (const Op& op : coded.ops)
      if (op.kernel == "encode") round(tensor_named(plain, coded.tensor(op.reads.front()).name), bits);
    for (const Op& op : plain.ops)
      if (op.phase == Phase::forward) make_anew(op);
    for (const Op& op : plain.ops)
      if (op.phase == Phase::backward) run(op);
  }
  std::vector<std::byte>& value(TensorId id) { return evaluator_.value(id); }

 private:
  LaunchTable table_ = cpu_launch_table();
  Evaluator evaluator_;
  std::set<TensorId> rounded_;

  void run(const Op& op) {
    std::vector<Operand> reads, writes;
    const Graph& graph = evaluator_.graph();
    for (const TensorId id : op.reads) reads.push_back({evaluator_.value(id).data(), &graph.tensor(id)});
    for (const TensorId id : op.writes) writes.push_back({evaluator_.value(id).data(), &graph.tensor(id)});
    table_.find(op)({&op, reads, writes, {0, seed, 0}, nullptr});
  }
  void make_anew(const Op& op) {
    const auto is_rounded = [&](TensorId id) { return rounded_.contains(id); };
    static const std::set<std::string> kernels = {"gelu", "tanh", "swiglu", "rotary", "attention"};
    if (op.kernel == "linear_gelu" && is_rounded(op.writes.at(0))) {
      Op gelu = op;
      gelu.kernel = "gelu";
      gelu.reads = {op.writes.at(0)};
      gelu.writes = {op.writes.at(1)};
      run(gelu);
    } else if (kernels.contains(op.kernel) && std::any_of(op.reads.begin(), op.reads.end(), is_rounded)) {
      run(op);
      rounded_.insert(op.writes.begin(), op.writes.end());
    }
  }
  template <class T>
  void round(std::vector<std::byte>& value, CodeBits bits) {
    auto* const at = reinterpret_cast<T*>(value.data());
    const auto count = static_cast<std::int64_t>(value.size() / sizeof(T));
    std::vector<std::byte> codes(coded_bytes(count, bits));
    cpu::encode(bits, count, at, codes.data());
    cpu::decode(bits, count, codes.data(), at);
  }
  void round(TensorId id, CodeBits bits) {
    rounded_.insert(id);
    const DataType type = evaluator_.graph().tensor(id).type;
    if (type == DataType::f32) round<float>(evaluator_.value(id), bits);
    if (type == DataType::bf16) round<Bfloat16>(evaluator_.value(id), bits);
    if (type == DataType::f16) round<Float16>(evaluator_.value(id), bits);
  }
};

TEST(CodedActivations, AreResultsOfProductsThatBackwardNeeds) {
  const auto coded = [](const ModelFamily& family) {
    const Graph graph = graph_of(family, CodeBits::eight);
    std::vector<std::string> names;
    for (const Op& op : graph.ops)
      if (op.kernel == "encode") names.push_back(graph.tensor(op.reads.front()).name);
    return names;
  };
  EXPECT_THAT(coded(gpt_family), testing::ElementsAre("h.0.attn.c_attn", "h.0.mlp.c_fc.pre",
                                                      "h.1.attn.c_attn", "h.1.mlp.c_fc.pre"));
  EXPECT_EQ(coded(bert_family).size(), 4U);
  EXPECT_THAT(
      coded(llama_family),
      testing::ElementsAre("layers.0.self_attn.qkv_proj", "layers.0.mlp.gate_proj", "layers.0.mlp.up_proj",
                           "layers.1.self_attn.qkv_proj", "layers.1.mlp.gate_proj", "layers.1.mlp.up_proj"));
  EXPECT_EQ(coded(qwen3_family), coded(llama_family));
}

// Backward reads neither a coded value nor what forward made of it without a product or norm.
TEST(CodedActivations, LeaveTheirValuesToForwardAlone) {
  for (const ModelFamily* family : families) {
    const Graph graph = graph_of(*family, CodeBits::four);
    std::set<TensorId> gone;
    for (const Op& op : graph.ops) {
      const bool reads_gone =
          std::any_of(op.reads.begin(), op.reads.end(), [&](TensorId id) { return gone.contains(id); });
      EXPECT_FALSE(op.phase == Phase::backward && reads_gone) << op.name;
      if (op.phase != Phase::forward) continue;
      for (const TensorId id : op.writes)
        if (is_coded(graph, id)) gone.insert(op.writes.begin(), op.writes.end());
      if (reads_gone && (op.kernel == "attention" || op.kernel == "swiglu" || op.kernel == "rotary"))
        gone.insert(op.writes.begin(), op.writes.end());
    }
    EXPECT_GE(gone.size(), 8U) << family->name;
  }
}

TEST(CodedActivations, AreNotInTheHalfBlockOfTheLoss) {
  for (const ModelFamily* family : families) {
    const Graph graph = graph_of(*family, CodeBits::four);
    const auto last = static_cast<std::uint32_t>(graph.unit_names.size() - 1);
    for (const Op& op : graph.ops)
      EXPECT_FALSE(op.unit == last && (op.kernel == "encode" || op.kernel == "decode")) << op.name;
  }
  const auto all_logits = [](ModelConfig& config) { config.head_tokens = 0; };
  EXPECT_FALSE(is_coded(graph_of(gpt_family, CodeBits::four, DataType::f32, all_logits),
                        tensor_named(graph_of(gpt_family, {}, DataType::f32, all_logits), "head")));
}

TEST(CodedActivations, AreLargeOnes) {
  const auto tokens = [](std::int64_t samples) {
    return [samples](ModelConfig& config) { config.batch = samples; };
  };
  // 128 floats a token of the MLP: 64 KiB are those of 128 tokens.
  for (const std::int64_t samples : {2, 4}) {
    const Graph graph = graph_of(gpt_family, CodeBits::four, DataType::f32, tokens(samples));
    EXPECT_EQ(is_coded(graph, tensor_named(graph, "h.0.mlp.c_fc.pre")), samples == 4);
    EXPECT_FALSE(is_coded(graph, tensor_named(graph, "h.0.attn.c_attn")));
  }
  EXPECT_EQ(graph_of(gpt_family, CodeBits::four, DataType::f32, tokens(1)),
            graph_of(gpt_family, {}, DataType::f32, tokens(1)));
}

// Long samples: attention would cost more than the product that it follows. Its operands stay exact, and so
// do their statistics.
TEST(CodedActivations, LeaveCostlyAttentionAsItIs) {
  for (const ModelFamily* family : families) {
    const auto longer = [](ModelConfig& config) {
      config.sequence = 256;
      config.batch = 4;
    };
    const Graph graph = graph_of(*family, CodeBits::four, DataType::f32, longer);
    std::size_t encodes = 0;
    for (const Op& op : graph.ops) {
      encodes += op.kernel == "encode" ? 1 : 0;
      EXPECT_FALSE(op.phase == Phase::backward && (op.kernel == "attention" || op.kernel == "rotary"))
          << op.name;
      if (op.kernel != "attention_backward") continue;
      for (const TensorId read : op.reads) EXPECT_FALSE(graph.tensor(read).name.ends_with(".anew"));
    }
    EXPECT_EQ(encodes, family == &gpt_family || family == &bert_family ? 2U : 4U) << family->name;
  }
}

// Where another unit reads attention's result, it cannot run again in its own unit's backward.
TEST(CodedActivations, LeaveAttentionAsItIsThatOtherUnitsRead) {
  for (const bool apart : {false, true}) {
    GraphBuilder builder;
    const Value x = builder.input("x", {1024}, DataType::i32);
    const auto parameter = [&](const char* name, std::vector<std::int64_t> shape) {
      return builder.parameter(name, std::move(shape), {0, 1});
    };
    builder.begin_unit("block");
    const Value trunk = nn::embedding(builder, "e", x, parameter("table", {8, 32}), {}, 32);
    const Value qkv = nn::linear(builder, "qkv", trunk, parameter("in", {32, 96}), {});
    const Value y = nn::attention(builder, "att", qkv, {.heads = 2, .sequence = 32});
    if (apart) builder.begin_unit("next");
    const Value z = nn::linear(builder, "z", y, parameter("out", {32, 32}), {});
    builder.begin_unit("head");
    builder.code_activations(CodeBits::eight);
    const Graph graph = builder.finish(nn::cross_entropy(builder, "loss", z, x), {});
    EXPECT_EQ(is_coded(graph, tensor_named(graph, "qkv")), !apart);
  }
}

// Codes are the only way from forward to backward, and small.
TEST(CodedActivations, TakeTheirBytes) {
  for (const CodeBits bits : {CodeBits::four, CodeBits::eight}) {
    const Graph graph = graph_of(gpt_family, bits, DataType::bf16);
    const Tensor& codes = graph.tensor(tensor_named(graph, "h.0.mlp.c_fc.pre.codes"));
    EXPECT_EQ(codes.type, DataType::u8);
    EXPECT_EQ(codes.bytes(), bits == CodeBits::four ? 131U * 512 : 259U * 512);
    EXPECT_EQ(graph.op(op_named(graph, "h.0.mlp.c_fc.pre.encode")).unit,
              graph.op(op_named(graph, "h.0.mlp.c_fc")).unit);
  }
}

TEST(CodedActivations, LeaveForwardAsItIs) {
  for (const ModelFamily* family : families) {
    const Graph plain = graph_of(*family, {}), coded = graph_of(*family, CodeBits::four);
    const LaunchTable table = cpu_launch_table();
    Evaluator exact(plain, table, seed), rounded(coded, table, seed);
    for (Evaluator* each : {&exact, &rounded}) {
      fill_inputs(*each);
      each->run(0, 0);
    }
    EXPECT_EQ(exact.value(plain.loss), rounded.value(coded.loss)) << family->name;
    EXPECT_NE(exact.value(plain.clip), rounded.value(coded.clip)) << family->name;
  }
}

// The builder codes before it adds updates.
TEST(CodedActivations, OfAFinishedStepAreThoseOfTheBuilder) {
  for (const ModelFamily* family : families) {
    const Graph plain = graph_of(*family, {}), coded = graph_of(*family, CodeBits::eight);
    const Graph late = with_coded_activations(plain, CodeBits::eight);
    const LaunchTable table = cpu_launch_table();
    Evaluator one(coded, table, seed), other(late, table, seed);
    for (Evaluator* each : {&one, &other}) {
      fill_inputs(*each);
      each->run(0, 0.1);
    }
    EXPECT_EQ(one.value(coded.clip), other.value(late.clip)) << family->name;
    for (TensorId id = 0; id < plain.tensors.size(); ++id) {
      EXPECT_EQ(late.tensors[id], plain.tensors[id]) << plain.tensors[id].name;
      if (plain.tensors[id].kind != TensorKind::parameter) continue;
      EXPECT_EQ(one.value(tensor_named(coded, plain.tensors[id].name)), other.value(id));
    }
  }
}

TEST(CodedActivations, GiveTheGradientsOfRoundedValues) {
  const LaunchTable table = cpu_launch_table();
  for (const ModelFamily* family : families) {
    for (const DataType type : {DataType::f32, DataType::bf16, DataType::f16}) {
      const CodeBits bits = type == DataType::bf16 ? CodeBits::four : CodeBits::eight;
      const auto change = [&](ModelConfig& config) {
        config.micro_batches = type == DataType::f16 ? 2 : 1;
        if (type == DataType::bf16) config.dropout = 0;
        if (family != &llama_family) return;
        config.windows = {0, 16};
        config.packed = type != DataType::f16;
        config.table_rows = type == DataType::f32 ? 16 : 0;
      };
      const Graph plain = graph_of(*family, {}, type, change), coded = graph_of(*family, bits, type, change);
      PlainCoding expected(plain, coded, bits);
      Evaluator found(coded, table, seed);
      fill_inputs(found);
      found.run(0, 0);
      std::size_t gradients = 0;
      for (TensorId id = 0; id < plain.tensors.size(); ++id) {
        if (plain.tensor(id).kind != TensorKind::gradient || plain.is_slice(id)) continue;
        ++gradients;
        EXPECT_TRUE(expected.value(id) == found.value(id)) << family->name << ' ' << plain.tensor(id).name;
      }
      EXPECT_GE(gradients, 18U);
    }
  }
}

// Large weights give scores of 50 and more. The rows of probabilities that backward computes from
// decoded queries and keys must still sum to 1.
TEST(CodedActivations, KeepProbabilitiesOfLargeScores) {
  for (const CodeBits bits : {CodeBits::four, CodeBits::eight}) {
    const Graph graph =
        graph_of(gpt_family, bits, DataType::f32, [](ModelConfig& config) { config.dropout = 0; });
    Evaluator evaluator(graph, cpu_launch_table(), seed);
    for (TensorId id = 0; id < graph.tensors.size(); ++id)
      if (graph.tensor(id).name.ends_with("c_attn.weight"))
        for (float& weight : elements_of<float>(evaluator.value(id))) weight *= 64;
    fill_inputs(evaluator);
    evaluator.run(0, 0);
    const auto qkv =
        test::elements_of<float>(evaluator.value(tensor_named(graph, "h.0.attn.c_attn.decoded")));
    const auto sums =
        test::elements_of<float>(evaluator.value(tensor_named(graph, "h.0.attn.log_sum_exp.anew")));
    double largest_score = 0, largest_row = 0, smallest_row = 2;
    for (std::size_t row = 0; row < 32; ++row) {  // of the first sample and head
      double sum = 0;
      for (std::size_t key = 0; key <= row; ++key) {
        double score = 0;
        for (std::size_t i = 0; i < 16; ++i)
          score += static_cast<double>(qkv[row * 96 + i]) * static_cast<double>(qkv[key * 96 + 32 + i]) / 4;
        largest_score = std::max(largest_score, std::abs(score));
        sum += std::exp(score - static_cast<double>(sums[row]));
      }
      largest_row = std::max(largest_row, sum);
      smallest_row = std::min(smallest_row, sum);
    }
    EXPECT_GT(largest_score, 50);
    EXPECT_LT(largest_row, 1.001);
    EXPECT_GT(smallest_row, 0.999);
    for (TensorId id = 0; id < graph.tensors.size(); ++id) {
      if (graph.tensor(id).kind != TensorKind::gradient) continue;
      for (const float value : elements_of<float>(evaluator.value(id))) ASSERT_TRUE(std::isfinite(value));
    }
  }
}

TEST(CodedActivations, SurviveJson) {
  const Graph graph = graph_of(gpt_family, CodeBits::four);
  EXPECT_EQ(graph_from_json(to_json(graph)), graph);
}

TEST(CodedActivations, AreRefusedTwiceAndInF64) {
  expect_refused([] { with_coded_activations(graph_of(gpt_family, CodeBits::four), CodeBits::four); },
                 "has some already");
  expect_refused([] { graph_of(gpt_family, CodeBits::four, DataType::f64); }, "f64 are not coded");
}

// An op of one's own may write over the last value that it reads, but not over a decoded one.
TEST(CodedActivations, AreNotWrittenOver) {
  GraphBuilder builder;
  const Value x = builder.input("x", {512}, DataType::i32);
  const Value table = builder.parameter("table", {8, 64}, {0, 1});
  const Value weight = builder.parameter("weight", {64, 64}, {0, 1});
  builder.begin_unit("block");
  const Value p = nn::linear(builder, "p", nn::embedding(builder, "e", x, table, {}, 64), weight, {});
  const Value t = nn::tanh(builder, "t", p);
  const Value s = builder.activation("s", {512, 64});
  builder.op({"square", "square", {}, {p}, {s}, {}, {}},
             [=](GraphBuilder& b, const std::vector<Value>& gradients) {
               const Value dp = b.gradient_like(p);
               b.op({"square.backward", "square_backward", {}, {p, gradients[0]}, {dp}, {{0, 0}}, {}});
               b.add_gradient(p, dp, true);
             });
  const Value sum = nn::add(builder, "sum", t, s);
  builder.begin_unit("head");
  builder.code_activations(CodeBits::eight);
  const Graph graph = builder.finish(nn::cross_entropy(builder, "loss", sum, x), {});
  const Op& backward = graph.op(op_named(graph, "square.backward"));
  EXPECT_EQ(graph.tensor(backward.reads.front()).name, "p.decoded");
  EXPECT_TRUE(backward.may_alias.empty());
}

// Incomplete ops have no kernel that runs them, but are no reason to end the program.
TEST(CodedActivations, PassOverIncompleteOps) {
  const Graph right = graph_of(gpt_family, {});
  const OpId product = op_named(right, "h.0.mlp.c_fc"), attention = op_named(right, "h.0.attn");
  Graph wrong = right;
  wrong.ops[product].attributes.erase("form");
  wrong.ops[attention].replayable = false;
  const Graph coded = with_coded_activations(wrong, CodeBits::four);
  EXPECT_FALSE(is_coded(coded, tensor_named(coded, "h.0.mlp.c_fc.pre")));
  EXPECT_FALSE(is_coded(coded, tensor_named(coded, "h.0.attn.c_attn")));
  EXPECT_TRUE(is_coded(coded, tensor_named(coded, "h.1.attn.c_attn")));
  wrong.loss = 0;
  EXPECT_THROW(with_coded_activations(wrong, CodeBits::four), InvalidInput);
}

}  // namespace
}  // namespace stowage
