#include "stowage/launch_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "stowage/error.h"

namespace stowage {
namespace {

// One op with its operands in plain memory.
class Launcher {
 public:
  Launcher(std::string kernel, Attributes attributes) {
    op_.name = "h.0.tested";
    op_.kernel = std::move(kernel);
    op_.attributes = std::move(attributes);
    tensors_.reserve(16);
  }

  template <class T>
  void read(std::vector<T>& data, std::vector<std::int64_t> shape) {
    reads_.push_back(operand(data, std::move(shape)));
  }
  template <class T>
  void write(std::vector<T>& data, std::vector<std::int64_t> shape) {
    writes_.push_back(operand(data, std::move(shape)));
  }

  void run(const StepContext& step = {}) const {
    cpu_launch_table().find(op_)({&op_, reads_, writes_, step, nullptr});
  }

  // What the kernel complains of.
  std::string complaint() const {
    try {
      run();
    } catch (const InvalidInput& error) {
      return error.what();
    }
    return "";
  }

 private:
  template <class T>
  Operand operand(std::vector<T>& data, std::vector<std::int64_t> shape) {
    Tensor tensor;
    tensor.name = "t" + std::to_string(tensors_.size());
    tensor.type = std::is_same_v<T, float>    ? DataType::f32
                  : std::is_same_v<T, double> ? DataType::f64
                                              : DataType::i32;
    tensor.shape = std::move(shape);
    tensors_.push_back(tensor);
    return {data.data(), &tensors_.back()};
  }

  Op op_;
  std::vector<Tensor> tensors_;
  std::vector<Operand> reads_;
  std::vector<Operand> writes_;
};

TEST(LaunchTable, UnknownKernelNamesOpAndKernel) {
  Op op;
  op.name = "h.3.mlp.fc";
  op.kernel = "convolution";
  try {
    cpu_launch_table().find(op);
    FAIL() << "found a convolution";
  } catch (const InvalidInput& error) {
    EXPECT_NE(std::string(error.what()).find("'h.3.mlp.fc'"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("'convolution'"), std::string::npos) << error.what();
  }
}

// Tokens and targets are the whole batch's; the op takes as many as its other operand has rows.
TEST(LaunchTable, TakesItsPartOfTheBatchsTokens) {
  std::vector<std::int32_t> tokens{0, 1, 1, 0}, targets{1, -1, -1, 0};
  std::vector<float> table{1, 2, 10, 20}, y(4), log_sum_exp(2);
  Launcher embedding("embedding", {{"first_token", std::int64_t{2}}});
  embedding.read(tokens, {4});
  embedding.read(table, {2, 2});
  embedding.write(y, {2, 2});
  embedding.run();
  EXPECT_THAT(y, testing::ElementsAre(10, 20, 1, 2));
  // Of two targets that count in the batch, one is in this half.
  std::vector<float> logits{5, 5, 3, 3};
  std::vector<double> loss(1);
  Launcher half("cross_entropy", {{"first_token", std::int64_t{2}}});
  half.read(logits, {2, 2});
  half.read(targets, {4});
  half.write(loss, {});
  half.write(log_sum_exp, {2});
  half.run();
  EXPECT_FLOAT_EQ(static_cast<float>(loss[0]), std::log(2.0F) / 2);
}

TEST(LaunchTable, RefusesMoreTokensThanTheBatchHas) {
  for (std::int64_t first : {std::int64_t{3}, std::int64_t{1} << 62, std::int64_t{-1}}) {
    std::vector<std::int32_t> tokens{0, 1, 1, 0};
    std::vector<float> table{1, 2, 10, 20}, y(4);
    Launcher embedding("embedding", {{"first_token", first}});
    embedding.read(tokens, {4});
    embedding.read(table, {2, 2});
    embedding.write(y, {2, 2});
    EXPECT_THAT(embedding.complaint(),
                testing::HasSubstr(first < 0 ? "negative attribute 'first_token'"
                                             : "takes more tokens than the batch has"));
  }
}

// Element `first` of the one is element 0 of the other.
TEST(LaunchTable, DropsTheSameElementsOfABatchInParts) {
  constexpr std::int64_t count = 40;
  const auto drop = [](const char* kernel, std::int64_t first) {
    std::vector<float> x(count, 1), zeros(count, 0), y(count);
    Launcher part(kernel, {{"probability", 0.5}, {"key", std::int64_t{3}}, {"first_element", first}});
    if (std::string_view(kernel) == "add") part.read(zeros, {count});
    part.read(x, {count});
    part.write(y, {count});
    part.run();
    return y;
  };
  for (const char* kernel : {"dropout", "add"}) {
    const std::vector<float> whole = drop(kernel, 0);
    for (std::int64_t first = 0; first < 9; ++first) {
      const std::vector<float> part = drop(kernel, first);
      EXPECT_EQ(std::vector<float>(part.begin(), part.end() - first),
                std::vector<float>(whole.begin() + first, whole.end()))
          << kernel << ' ' << first;
    }
  }
}

// Three samples at once and one by one, each of 27 probabilities.
TEST(LaunchTable, DropsTheSameProbabilitiesOfABatchInParts) {
  constexpr std::int64_t heads = 3, sequence = 3, width = 6;
  const auto attend = [=](std::int64_t first_sample, std::int64_t samples) {
    const std::int64_t tokens = samples * sequence;
    std::vector<float> qkv(static_cast<std::size_t>(tokens * 3 * width));
    for (std::size_t i = 0; i < qkv.size(); ++i) qkv[i] = static_cast<float>(i % 5);
    for (std::size_t i = 3 * width * sequence; i < qkv.size(); ++i) qkv[i] = qkv[i - 3 * width * sequence];
    std::vector<float> out(static_cast<std::size_t>(tokens * width));
    std::vector<float> log_sum_exp(static_cast<std::size_t>(tokens * heads));
    Launcher part("attention", {{"heads", heads},
                                {"sequence", sequence},
                                {"causal", std::int64_t{0}},
                                {"dropout", 0.5},
                                {"key", std::int64_t{3}},
                                {"first_element", first_sample * heads * sequence * sequence}});
    part.read(qkv, {tokens, 3 * width});
    part.write(out, {tokens, width});
    part.write(log_sum_exp, {samples, heads, sequence});
    part.run();
    return out;
  };
  std::vector<float> parts;
  for (std::int64_t sample : {0, 1, 2}) {
    const std::vector<float> part = attend(sample, 1);
    parts.insert(parts.end(), part.begin(), part.end());
  }
  EXPECT_EQ(attend(0, 3), parts);
}

// The second half of a batch of two samples, in which a document begins at the second token.
TEST(LaunchTable, TakesItsPartOfTheBatchsDocuments) {
  std::vector<float> qkv{0, 0, 1, 0, 0, 2, 0, 0, 3}, out(3), log_sum_exp(3);
  std::vector<std::int32_t> begins{0, 0, 0, 0, 1, 1};
  Launcher attention("attention", {{"heads", std::int64_t{1}},
                                   {"sequence", std::int64_t{3}},
                                   {"causal", std::int64_t{1}},
                                   {"dropout", 0.0},
                                   {"key", std::int64_t{0}},
                                   {"documents", std::int64_t{1}},
                                   {"first_token", std::int64_t{3}}});
  attention.read(qkv, {3, 3});
  attention.read(begins, {6});
  attention.write(out, {3, 1});
  attention.write(log_sum_exp, {1, 1, 3});
  attention.run();
  EXPECT_THAT(out, testing::ElementsAre(1, 2, 2.5F));
}

TEST(LaunchTable, HoldsEveryKernelOfTheContract) {
  const LaunchTable table = cpu_launch_table();
  for (const char* kernel : {"embedding",
                             "embedding_backward",
                             "position_backward",
                             "layer_norm",
                             "layer_norm_backward",
                             "layer_norm_backward_parameters",
                             "rms_norm",
                             "rms_norm_backward",
                             "rms_norm_backward_parameters",
                             "linear",
                             "linear_backward_input",
                             "linear_backward_weight",
                             "linear_backward_bias",
                             "gelu",
                             "gelu_backward",
                             "swiglu",
                             "swiglu_backward",
                             "tanh",
                             "tanh_backward",
                             "first_token",
                             "first_token_backward",
                             "attention",
                             "attention_backward",
                             "rotary",
                             "rotary_backward",
                             "dropout",
                             "add",
                             "accumulate",
                             "tree_sum",
                             "cross_entropy",
                             "cross_entropy_backward",
                             "linear_cross_entropy",
                             "head_statistics",
                             "head_loss",
                             "head_loss_backward",
                             "head_backward",
                             "add_loss",
                             "square_sum",
                             "clip",
                             "norm_part",
                             "adamw"}) {
    Op op;
    op.kernel = kernel;
    EXPECT_NO_THROW(table.find(op)) << kernel;
  }
}

TEST(LaunchTable, OwnKernelsCanBeAddedAndReplaced) {
  LaunchTable table = cpu_launch_table();
  const Kernel own = [](const LaunchArguments&) {};
  table.add("add", own);
  table.add("own", own);
  Op op;
  op.kernel = "add";
  EXPECT_EQ(table.find(op), own);
  op.kernel = "own";
  EXPECT_EQ(table.find(op), own);
}

template <class T>
class LaunchTypes : public testing::Test {};
using WorkTypes = testing::Types<float, double>;
TYPED_TEST_SUITE(LaunchTypes, WorkTypes);

TYPED_TEST(LaunchTypes, Linear) {
  std::vector<TypeParam> x{1, 2, 3, 4, 5, 6};
  std::vector<TypeParam> weight{1, 0, 2, 0, 1, 3};  // [2, 3] as stored
  std::vector<TypeParam> bias{10, 20};
  std::vector<TypeParam> y(4);
  Launcher transposed("linear", {{"transposed", std::int64_t{1}}});
  transposed.read(x, {2, 3});
  transposed.read(weight, {2, 3});
  transposed.read(bias, {2});
  transposed.write(y, {2, 2});
  transposed.run();
  EXPECT_EQ(y, (std::vector<TypeParam>{17, 31, 26, 43}));
}

TYPED_TEST(LaunchTypes, Embedding) {
  std::vector<std::int32_t> tokens{1, 0, 1, 1};
  std::vector<TypeParam> table{1, 2, 3, 4};
  std::vector<TypeParam> positions{10, 20, 30, 40};
  std::vector<TypeParam> y(8);
  Launcher embedding("embedding", {{"sequence", std::int64_t{2}}});
  embedding.read(tokens, {4});
  embedding.read(table, {2, 2});
  embedding.read(positions, {2, 2});
  embedding.write(y, {4, 2});
  embedding.run();
  EXPECT_EQ(y, (std::vector<TypeParam>{13, 24, 31, 42, 13, 24, 33, 44}));

  std::vector<TypeParam> dtable(4);
  Launcher backward("embedding_backward", {});
  backward.read(tokens, {4});
  backward.read(y, {4, 2});
  backward.write(dtable, {2, 2});
  backward.run();
  EXPECT_EQ(dtable, (std::vector<TypeParam>{31, 42, 59, 92}));
}

TYPED_TEST(LaunchTypes, ClipThenAdamW) {
  std::vector<double> first{9};
  std::vector<double> second{16};
  std::vector<double> clipped(2);
  Launcher clip("clip", {{"clip", 1.0}});
  clip.read(first, {});
  clip.read(second, {});
  clip.write(clipped, {2});
  clip.run();
  EXPECT_EQ(clipped, (std::vector<double>{5, 0.2}));

  std::vector<TypeParam> p{1};
  std::vector<TypeParam> gradient{5};
  std::vector<TypeParam> m{0};
  std::vector<TypeParam> v{0};
  Launcher adamw("adamw", {{"beta1", 0.5}, {"beta2", 0.5}, {"epsilon", 0.0}, {"weight_decay", 0.5}});
  adamw.read(p, {1});
  adamw.read(gradient, {1});
  adamw.read(m, {1});
  adamw.read(v, {1});
  adamw.read(clipped, {2});
  adamw.write(p, {1});
  adamw.write(m, {1});
  adamw.write(v, {1});
  adamw.run({0, 1, 0.25});
  // Clipped gradient 1, moments 0.5, both corrected to 1: p - 0.25 (1 + 0.5 p).
  EXPECT_EQ(p, std::vector<TypeParam>{0.625});
  EXPECT_EQ(m, std::vector<TypeParam>{0.5});
  EXPECT_EQ(v, std::vector<TypeParam>{0.5});
}

TYPED_TEST(LaunchTypes, SquareSumsOfSeveral) {
  std::vector<TypeParam> x{3, 4}, y{2};
  std::vector<double> of_x(1), of_y(1);
  Launcher squares("square_sums", {});
  squares.read(x, {2});
  squares.read(y, {1});
  squares.write(of_x, {});
  squares.write(of_y, {});
  squares.run();
  EXPECT_EQ(of_x.front(), 25);
  EXPECT_EQ(of_y.front(), 4);
}

// Two pieces of two gradients: (9 + 7) + (16 + 4), whose root is 6.
TYPED_TEST(LaunchTypes, SquareSumsOfPiecesThenClip) {
  std::vector<TypeParam> x{3, 0, 4, 9};
  std::vector<double> first(2), second{7, 4}, clipped(2), part(1);
  Launcher squares("square_sum",
                   {{"pieces", std::int64_t{2}}, {"piece", std::int64_t{2}}, {"count", std::int64_t{3}}});
  squares.read(x, {4});
  squares.write(first, {2});
  squares.run();
  EXPECT_EQ(first, (std::vector<double>{9, 16}));
  Launcher clip("clip", {{"clip", 1.5}, {"pieces", std::int64_t{2}}});
  Launcher norm_part("norm_part", {{"pieces", std::int64_t{2}}});
  for (Launcher* launcher : {&clip, &norm_part}) {
    launcher->read(first, {2});
    launcher->read(second, {2});
  }
  clip.write(clipped, {2});
  clip.run();
  EXPECT_EQ(clipped, (std::vector<double>{6, 0.25}));
  norm_part.write(part, {});
  norm_part.run();
  EXPECT_EQ(part, std::vector<double>{36});
}

// dx takes dy's bytes, of which dgain needs the old ones: x rstd is 1 and 2.
TYPED_TEST(LaunchTypes, RmsNormBackwardInPlace) {
  std::vector<TypeParam> x{2, 4}, gain{1, 1}, rstd{0.5}, dy{3, 8}, before{10, 20}, dgain(2);
  Launcher backward("rms_norm_backward", {});
  backward.read(x, {1, 2});
  backward.read(gain, {2});
  backward.read(rstd, {1});
  backward.read(dy, {1, 2});
  backward.read(before, {1, 2});
  backward.write(dy, {1, 2});
  backward.write(dgain, {2});
  backward.run();
  EXPECT_EQ(dgain, (std::vector<TypeParam>{3, 16}));
  // The average of g n is (3 + 16) / 2: 0.5 (3 - 9.5) + 10 and 0.5 (8 - 19) + 20.
  EXPECT_EQ(dy, (std::vector<TypeParam>{6.75, 14.5}));
}

TYPED_TEST(LaunchTypes, SwigluAndItsBackwardInPlace) {
  std::vector<TypeParam> gate{0, 200}, up{3, 3}, y(2), dy{4, 4}, dup(2);
  Launcher forward("swiglu", {});
  forward.read(gate, {1, 2});
  forward.read(up, {1, 2});
  forward.write(y, {1, 2});
  forward.run();
  EXPECT_EQ(y, (std::vector<TypeParam>{0, 600}));
  Launcher backward("swiglu_backward", {});
  backward.read(gate, {1, 2});
  backward.read(up, {1, 2});
  backward.read(dy, {1, 2});
  backward.write(dy, {1, 2});
  backward.write(dup, {1, 2});
  backward.run();
  EXPECT_EQ(dy, (std::vector<TypeParam>{6, 12}));
  EXPECT_EQ(dup, (std::vector<TypeParam>{0, 800}));
}

TYPED_TEST(LaunchTypes, TreeSumOfRows) {
  std::vector<TypeParam> a{1, 2, 3, 10, 20, 30}, y(3, -1);
  Launcher sum("tree_sum", {{"rows", std::int64_t{2}}, {"count", std::int64_t{2}}});
  sum.read(a, {6});
  sum.write(y, {3});
  sum.run();
  EXPECT_EQ(y, (std::vector<TypeParam>{11, 22, 0}));
}

TYPED_TEST(LaunchTypes, DropoutDrawsByStep) {
  std::vector<TypeParam> x(1000, 1);
  std::vector<TypeParam> y(1000);
  std::vector<TypeParam> again(1000);
  Launcher dropout("dropout", {{"probability", 0.5}, {"key", std::int64_t{3}}});
  dropout.read(x, {1000});
  dropout.write(y, {1000});
  dropout.run({1, 2, 0});
  again = y;
  dropout.run({1, 2, 0});
  EXPECT_EQ(y, again);
  dropout.run({2, 2, 0});
  EXPECT_NE(y, again);
}

TYPED_TEST(LaunchTypes, AttentionRefusesHeadsThatDoNotDivide) {
  std::vector<TypeParam> qkv(4 * 9);
  std::vector<TypeParam> out(4 * 3);
  std::vector<TypeParam> log_sum_exp(8);
  Launcher attention("attention", {{"heads", std::int64_t{2}},
                                   {"sequence", std::int64_t{4}},
                                   {"causal", std::int64_t{1}},
                                   {"dropout", 0.0},
                                   {"key", std::int64_t{0}}});
  attention.read(qkv, {4, 9});
  attention.write(out, {4, 3});
  attention.write(log_sum_exp, {1, 2, 4});
  EXPECT_NE(attention.complaint().find("'h.0.tested' (kernel 'attention')"), std::string::npos);
}

TEST(LaunchInput, AttentionRefusesGroupsAndMasksThatDoNotFit) {
  const auto complaint = [](std::int64_t key_heads, std::int64_t causal, bool documents, std::size_t begins) {
    std::vector<float> qkv(4 * 8), out(4 * 4), log_sum_exp(16);
    std::vector<std::int32_t> given(begins);
    Attributes attributes{{"heads", std::int64_t{4}}, {"key_heads", key_heads}, {"sequence", std::int64_t{4}},
                          {"causal", causal},         {"dropout", 0.0},         {"key", std::int64_t{0}}};
    if (documents) attributes["documents"] = std::int64_t{1};
    Launcher attention("attention", attributes);
    attention.read(qkv, {4, 8});
    if (begins > 0) attention.read(given, {static_cast<std::int64_t>(begins)});
    attention.write(out, {4, 4});
    attention.write(log_sum_exp, {1, 4, 4});
    return attention.complaint();
  };
  EXPECT_EQ(complaint(2, 1, true, 4), "");
  EXPECT_THAT(complaint(0, 1, false, 0), testing::HasSubstr("needs a positive attribute 'key_heads'"));
  EXPECT_THAT(complaint(3, 1, false, 0), testing::HasSubstr("needs a multiple of its key heads as heads"));
  EXPECT_THAT(complaint(1, 1, false, 0), testing::HasSubstr("that divide into its heads"));
  EXPECT_THAT(complaint(2, 1, true, 0), testing::HasSubstr("needs the begins of its documents"));
  EXPECT_THAT(complaint(2, 0, true, 4), testing::HasSubstr("without a causal mask, or with padding"));
  EXPECT_THAT(complaint(2, 1, true, 3), testing::HasSubstr("takes more tokens than the batch has"));
}

TEST(LaunchInput, MissingAttributeOperandOrTypeIsNamed) {
  std::vector<float> x(4);
  std::vector<double> wide(4);
  Launcher lacks("gelu", {});
  lacks.read(x, {4});
  lacks.write(x, {4});
  EXPECT_NE(lacks.complaint().find("lacks the attribute 'form'"), std::string::npos) << lacks.complaint();

  Launcher odd("gelu", {{"form", std::string("relu")}});
  odd.read(x, {4});
  odd.write(x, {4});
  EXPECT_NE(odd.complaint().find("'relu'"), std::string::npos) << odd.complaint();

  Launcher one("add", {});
  one.read(x, {4});
  one.write(x, {4});
  EXPECT_NE(one.complaint().find("number of inputs"), std::string::npos) << one.complaint();

  Launcher mixed("add", {});
  mixed.read(x, {4});
  mixed.read(wide, {4});
  mixed.write(x, {4});
  EXPECT_NE(mixed.complaint().find("'t1'"), std::string::npos) << mixed.complaint();

  Launcher zero("position_backward", {{"sequence", std::int64_t{0}}});
  zero.read(x, {2, 2});
  zero.write(x, {2, 2});
  EXPECT_NE(zero.complaint().find("'sequence'"), std::string::npos) << zero.complaint();
}

TEST(LaunchInput, PiecesMustFitTheirOperands) {
  struct Case {
    const char* kernel;
    Attributes attributes;
    std::int64_t reads, writes;
    const char* words;
  };
  const auto n = [](std::int64_t value) { return Attribute{value}; };
  constexpr std::int64_t huge = std::numeric_limits<std::int64_t>::max() / 2;
  for (const auto& [kernel, attributes, reads, writes, words] : {
           Case{"square_sum", {{"pieces", n(0)}, {"piece", n(4)}}, 4, 1, "positive attribute 'pieces'"},
           Case{"square_sum", {{"pieces", n(1)}, {"piece", n(0)}}, 4, 1, "positive attribute 'piece'"},
           Case{"square_sum", {{"pieces", n(1)}}, 4, 1, "lacks the attribute 'piece'"},
           Case{"square_sum", {{"pieces", n(2)}, {"piece", n(2)}}, 4, 1, "one element for each piece"},
           Case{"square_sum", {{"pieces", n(2)}, {"piece", n(1)}}, 4, 2, "elements that are in no piece"},
           Case{"square_sum", {{"pieces", n(2)}, {"piece", n(huge)}}, 4, 2, "pieces of too many elements"},
           Case{"square_sum",
                {{"pieces", n(1)}, {"piece", n(9)}, {"count", n(5)}},
                4,
                1,
                "counts more elements"},
           Case{"square_sum",
                {{"pieces", n(1)}, {"piece", n(9)}, {"count", n(-1)}},
                4,
                1,
                "negative attribute"},
           Case{"clip", {{"clip", 1.0}, {"pieces", n(3)}}, 3, 2, "power of two as attribute 'pieces'"},
           Case{"clip", {{"clip", 1.0}, {"pieces", n(2)}}, 4, 2, "inputs of one element for each piece"},
           Case{"norm_part", {}, 1, 1, "lacks the attribute 'pieces'"},
           Case{"norm_part", {{"pieces", n(6)}}, 6, 1, "power of two as attribute 'pieces'"},
           Case{"norm_part", {{"pieces", n(4)}}, 2, 1, "inputs of one element for each piece"},
           Case{"tree_sum", {{"rows", n(3)}}, 9, 3, "power of two as attribute 'rows'"},
           Case{"tree_sum", {{"rows", n(-4)}}, 4, 1, "positive attribute 'rows'"},
           Case{"tree_sum", {{"rows", n(2048)}}, 2048, 1, "more than 1,024 rows"},
           Case{"tree_sum", {{"rows", n(2)}}, 5, 2, "'rows' times its output's elements"},
           Case{"tree_sum", {{"rows", n(2)}}, 4, 1, "'rows' times its output's elements"},
           Case{"tree_sum", {{"rows", n(2)}, {"count", n(3)}}, 4, 2, "counts more elements"},
       }) {
    std::vector<double> read(static_cast<std::size_t>(reads)), written(static_cast<std::size_t>(writes));
    Launcher launcher(kernel, attributes);
    launcher.read(read, {reads});
    launcher.write(written, {writes});
    EXPECT_THAT(launcher.complaint(), testing::HasSubstr(words)) << kernel;
    EXPECT_THAT(launcher.complaint(), testing::HasSubstr("'h.0.tested' (kernel '")) << kernel;
  }
}

TEST(LaunchInput, AVocabularyMustFitItsLogits) {
  for (const auto& [vocabulary, words] : {std::pair{std::int64_t{3}, "larger than its logits"},
                                          std::pair{std::int64_t{-1}, "negative attribute 'vocabulary'"}}) {
    std::vector<float> logits(4), log_sum_exp(2);
    std::vector<std::int32_t> targets{0, 1};
    std::vector<double> loss(1);
    Launcher entropy("cross_entropy", {{"vocabulary", vocabulary}});
    entropy.read(logits, {2, 2});
    entropy.read(targets, {2});
    entropy.write(loss, {});
    entropy.write(log_sum_exp, {2});
    EXPECT_THAT(entropy.complaint(), testing::HasSubstr(words));
  }
}

TEST(LaunchInput, RotaryMustFitItsOperands) {
  struct Case {
    std::int64_t heads, key_heads, sequence;
    double theta;
    std::int64_t gain, rstd;
    const char* words;
  };
  for (const auto& [heads, key_heads, sequence, theta, gain, rstd, words] : {
           Case{1, 1, 2, 10, 0, 0, ""},
           Case{1, 1, 2, 10, 4, 4, ""},
           Case{2, 1, 2, 10, 0, 0, "heads of an even width"},
           Case{4, 4, 2, 10, 0, 0, "heads of an even width"},
           Case{std::int64_t{1} << 62, 1, 2, 10, 0, 0, "heads of an even width"},
           Case{0, 1, 2, 10, 0, 0, "positive attribute 'heads'"},
           Case{1, 1, 3, 10, 0, 0, "whole sequences"},
           Case{1, 1, 2, 0, 0, 0, "give no angles"},
           Case{1, 1, 2, 10, 3, 4, "a gain of queries of another size"},
           Case{1, 1, 2, 10, 4, 5, "an rstd of another size"},
       }) {
    std::vector<float> qkv(24), gains(4), y(24), rstds(4);
    Launcher rotary("rotary", {{"heads", heads},
                               {"key_heads", key_heads},
                               {"sequence", sequence},
                               {"theta", theta},
                               {"epsilon", 1e-6}});
    rotary.read(qkv, {2, 12});
    rotary.write(y, {2, 12});
    if (gain > 0) {
      rotary.read(gains, {gain});
      rotary.read(gains, {4});
      rotary.write(rstds, {rstd});
    }
    EXPECT_THAT(rotary.complaint(), testing::HasSubstr(words));
    EXPECT_EQ(rotary.complaint().empty(), std::string(words).empty());
  }
}

TEST(LaunchInput, FirstTokensNeedWholeSequences) {
  std::vector<float> x(6), y(2);
  Launcher first("first_token", {{"sequence", std::int64_t{2}}});
  first.read(x, {3, 2});
  first.write(y, {1, 2});
  EXPECT_THAT(first.complaint(), testing::HasSubstr("whole sequences"));
}

// Two tokens of four are kept; queries, keys and values are one wide.
TEST(LaunchTable, RefusesKeptTokensThatDoNotFit) {
  const auto scores = [](Attributes more, std::int64_t tokens) {
    Attributes attributes{{"heads", std::int64_t{1}},
                          {"sequence", std::int64_t{4}},
                          {"causal", std::int64_t{1}},
                          {"dropout", 0.0},
                          {"key", std::int64_t{0}}};
    attributes.merge(more);
    std::vector<float> qkv(12), sums(4), by_head(4), result(4);
    Launcher of("attention_scores", attributes);
    of.read(qkv, {4, 3});
    of.read(sums, {1, 1, 4});
    of.write(result, {tokens});
    of.write(by_head, {4});
    return of.complaint();
  };
  EXPECT_EQ(scores({}, 4), "");
  EXPECT_THAT(scores({}, 3), testing::HasSubstr("a score of each token"));
  EXPECT_THAT(scores({{"window", std::int64_t{2}}}, 4), testing::HasSubstr("neither a window nor documents"));
  const auto top = [](std::int64_t keep, std::int64_t kept) {
    std::vector<float> given{3, 1, 2, 4};
    std::vector<std::int32_t> rows(4);
    Launcher of("top_tokens", {{"sequence", std::int64_t{4}}, {"keep", keep}});
    of.read(given, {4});
    of.write(rows, {kept});
    return of.complaint();
  };
  EXPECT_EQ(top(2, 2), "");
  for (const auto& [keep, kept] : {std::pair<std::int64_t, std::int64_t>{5, 5}, {2, 3}})
    EXPECT_THAT(top(keep, kept), testing::HasSubstr("a row for each token that it keeps"));
  for (const char* kernel : {"take_rows", "take_rows_backward"}) {
    std::vector<float> x(8);
    std::vector<std::int32_t> rows{0, 1, 2};
    Launcher of(kernel, {});
    of.read(x, {2, 2});
    of.read(rows, {3});
    of.write(x, {2, 2});
    EXPECT_THAT(of.complaint(), testing::HasSubstr("needs a number for each kept row")) << kernel;
  }
}

// A result of another width would be written beyond its end.
TEST(LaunchTable, RefusesKeptRowsOfAnotherWidth) {
  std::vector<float> x(16), y(16), to(16);
  std::vector<std::int32_t> rows{0, 2};
  const auto complaint = [&](const char* kernel, std::int64_t width, std::int64_t written) {
    Launcher of(kernel, {});
    const bool is_back = kernel == std::string("take_rows_backward");
    of.read(x, {is_back ? 2 : 4, width});
    if (kernel == std::string("add_rows")) of.read(y, {2, written});
    of.read(rows, {2});
    of.write(to, {kernel == std::string("take_rows") ? 2 : 4, written});
    return of.complaint();
  };
  for (const char* kernel : {"take_rows", "take_rows_backward", "add_rows"}) {
    EXPECT_EQ(complaint(kernel, 3, 3), "") << kernel;
    EXPECT_THAT(complaint(kernel, 3, 1), testing::HasSubstr("needs rows of one width")) << kernel;
    EXPECT_THAT(complaint(kernel, 1, 3), testing::HasSubstr("needs rows of one width")) << kernel;
  }
}

}  // namespace
}  // namespace stowage
