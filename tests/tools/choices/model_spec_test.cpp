#include "tools/choices/model_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "stowage/machine_file.h"
#include "tests/support/expect_refused.h"
#include "tests/support/graph_queries.h"

namespace stowage {
namespace {

ModelSpec gpt_spec(const std::string& size, DataType type = DataType::f32) {
  return model_spec({.gpt = size}, type).value();
}

void expect_refused(const ModelWords& words, const std::string& saying) {
  test::expect_refused([&] { model_spec(words, DataType::f32); }, saying);
}

TEST(ModelSpec, ReadsLayersAndWidth) {
  const ModelSpec spec = gpt_spec("24x1024");
  EXPECT_EQ(spec.family, &gpt_family);
  EXPECT_EQ(spec.config.layers, 24);
  EXPECT_EQ(spec.config.width, 1024);
  EXPECT_EQ(spec.config.heads, 16);
  EXPECT_EQ(spec.config.vocabulary, 50304);
  EXPECT_EQ(spec.config.sequence, 1024);
  EXPECT_EQ(spec.config.batch, 8);
  EXPECT_EQ(spec.tokens(), 8192);
  EXPECT_EQ(describe(spec), "gpt, 24 layers, width 1024, heads 16, vocabulary 50304");
}

TEST(ModelSpec, ReadsNames) {
  EXPECT_EQ(gpt_spec("1.3b").config.width, 2048);
  EXPECT_EQ(gpt_spec("gpt2-xl").config.heads, 25);
  const ModelSpec base = model_spec({.bert = "base"}, DataType::f32).value();
  EXPECT_EQ(base.family, &bert_family);
  EXPECT_EQ(base.config.layers, 12);
  EXPECT_EQ(base.config.vocabulary, 30528);
  EXPECT_EQ(base.config.sequence, 512);
  EXPECT_EQ(model_spec({.bert = "large"}, DataType::f32)->config.width, 1024);
  EXPECT_EQ(model_spec({.bert = "3x128"}, DataType::f32)->config.heads, 2);
}

TEST(ModelSpec, TakesWhatIsSaid) {
  const ModelSpec spec =
      model_spec(
          {.gpt = "2x96", .heads = "3", .sequence = "16", .batch = "5", .vocabulary = "77", .type = "f32"},
          DataType::bf16)
          .value();
  EXPECT_EQ(spec.config.heads, 3);
  EXPECT_EQ(spec.config.sequence, 16);
  EXPECT_EQ(spec.config.batch, 5);
  EXPECT_EQ(spec.config.vocabulary, 77);
  EXPECT_EQ(spec.type, DataType::f32);
  EXPECT_EQ(gpt_spec("2x64", DataType::bf16).type, DataType::bf16);
  EXPECT_EQ(model_spec({.gpt = "2x64", .type = "fp16"}, DataType::f32)->type, DataType::f16);
}

TEST(ModelSpec, IsNothingWhereNothingIsSaid) { EXPECT_FALSE(model_spec(ModelWords{}, DataType::f32)); }

TEST(ModelSpec, BuildsTheModel) {
  const Graph gpt = build(
      model_spec({.gpt = "2x64", .sequence = "8", .batch = "2", .vocabulary = "96"}, DataType::bf16).value());
  EXPECT_EQ(work_type(gpt), DataType::bf16);
  EXPECT_EQ(gpt.tensor(test::tensor_named(gpt, "wte.weight")).shape, (std::vector<std::int64_t>{128, 64}));
  EXPECT_EQ(gpt.tensor(test::tensor_named(gpt, "tokens")).shape, (std::vector<std::int64_t>{16}));
  EXPECT_EQ(gpt.unit_names.size(), 6U);
  const Graph bert = build(
      model_spec({.bert = "1x64", .sequence = "8", .batch = "2", .vocabulary = "96"}, DataType::f32).value());
  EXPECT_EQ(bert.tensor(test::tensor_named(bert, "bert.encoder.layer.0.intermediate.dense.weight")).type,
            DataType::f32);
}

TEST(ModelSpec, SplitsTheBatch) {
  for (const ModelWords& words :
       {ModelWords{.gpt = "1x64", .sequence = "8", .batch = "6", .micro_batches = "3"},
        ModelWords{.bert = "1x64", .sequence = "8", .batch = "6", .micro_batches = "3"}}) {
    const ModelSpec spec = model_spec(words, DataType::f32).value();
    EXPECT_EQ(spec.config.micro_batches, 3);
    EXPECT_EQ(build(spec).micro_batches, 3U);
  }
  EXPECT_EQ(gpt_spec("2x64", DataType::bf16).config.micro_batches, 1);
  for (const ModelWords& words :
       {ModelWords{.gpt = "1x64", .sequence = "8", .micro_batches = "4", .gradient_groups = "2"},
        ModelWords{.bert = "1x64", .sequence = "8", .micro_batches = "4", .gradient_groups = "2"}})
    EXPECT_EQ(build(model_spec(words, DataType::f32).value()).gradient_groups, 2U);
}

TEST(ModelSpec, DevicesHaveAGradientGroupEachUnlessToldOtherwise) {
  const auto spec = [](const ModelWords& words) { return model_spec(words, DataType::bf16).value(); };
  const ModelSpec plain = spec({.gpt = "2x64", .devices = "4"});
  EXPECT_EQ(plain.config.ranks, 4);
  EXPECT_EQ(plain.config.gradient_groups, 4);
  EXPECT_EQ(plain.config.micro_batches, 4);
  EXPECT_EQ(spec({.gpt = "2x64", .micro_batches = "8", .devices = "4"}).config.gradient_groups, 4);
  EXPECT_EQ(spec({.gpt = "2x64", .gradient_groups = "8", .devices = "4"}).config.micro_batches, 8);
  EXPECT_EQ(spec({.gpt = "2x64", .gradient_groups = "8"}).config.micro_batches, 8);
  EXPECT_EQ(gpt_spec("2x64").config.ranks, 1);
  EXPECT_EQ(gpt_spec("2x64").config.gradient_groups, 1);
  EXPECT_EQ(model_spec(GptSize{"", 2, 64, 1}, {.devices = "2"}, DataType::f32).config.ranks, 2);
}

TEST(ModelSpec, OfSeveralDevicesTheFirstIsBuilt) {
  for (const ModelWords& words :
       {ModelWords{.gpt = "1x64", .sequence = "8", .batch = "4", .devices = "4"},
        ModelWords{.bert = "1x64", .sequence = "8", .batch = "4", .devices = "4"}}) {
    const Graph graph = build(model_spec(words, DataType::f32).value());
    EXPECT_EQ(graph.share, (BatchShare{0, 4}));
    EXPECT_EQ(graph.micro_batches, 1U);
  }
}

TEST(ModelSpec, RefusesDevicesThatHaveNoEqualParts) {
  const std::string size = "2x64";
  expect_refused({.gpt = size, .devices = "3"}, "--devices 3 is no power of two");
  expect_refused({.gpt = size, .devices = "0"}, "--devices: \"0\" is no whole number from 1 to 64");
  expect_refused({.gpt = size, .devices = "65"}, "--devices: \"65\"");
  expect_refused({.gpt = size, .batch = "6", .devices = "4"},
                 "--devices 4 does not divide 6 samples; give --batch, a multiple of 4");
  expect_refused({.gpt = size, .micro_batches = "2", .devices = "4"},
                 "--devices 4 does not divide 2 micro-batches; give --micro-batches, a multiple of 4");
  expect_refused({.gpt = size, .micro_batches = "4", .gradient_groups = "2", .devices = "4"},
                 "--devices 4 does not divide 2 gradient groups; give --gradient-groups, a multiple of 4");
  expect_refused({.devices = "2"}, "--devices 2: a saved graph has its own");
}

TEST(ModelSpec, RefusesWhatIsNoModel) {
  for (const char* text :
       {"24x", "x24", "x", "24", "big", "-1x64", "24x64 ", "24*64", "24X64", "GPT2", "1e3x64"})
    expect_refused({.gpt = text}, "--gpt: \"" + std::string(text) + "\" is no model; give LAYERSxWIDTH");
  expect_refused({.gpt = "big"}, "gpt2, gpt2-medium, gpt2-large, gpt2-xl, 1.3b");
  expect_refused({.bert = "gpt2"},
                 "--bert: \"gpt2\" is no model; give LAYERSxWIDTH, such as 24x1024, or one of "
                 "base, large");
  expect_refused({.gpt = "0x0"}, "--gpt 0x0: layers: \"0\" is no whole number from 1 to 1024");
  expect_refused({.gpt = "1x0"}, "--gpt 1x0: width: \"0\" is no whole number");
  expect_refused({.gpt = "99999999999x1"}, "--gpt 99999999999x1: layers: \"99999999999\" is no whole number");
  expect_refused({.gpt = "1x99999999999999999999"}, "width: \"99999999999999999999\" is no whole number");
  expect_refused({.gpt = "2x3x4"}, "--gpt 2x3x4: width: \"3x4\"");
}

TEST(ModelSpec, TheHeadsChunkIsThatOfTheModelOrAsSaid) {
  const auto chunk = [](const ModelWords& words) {
    const Graph graph = build(model_spec(words, DataType::f32).value());
    for (const Op& op : graph.ops)
      if (op.kernel == "linear_cross_entropy") return std::get<std::int64_t>(op.attributes.at("chunk"));
    return std::int64_t{0};
  };
  EXPECT_EQ(chunk({.gpt = "1x64", .sequence = "8", .batch = "2", .head_chunk = "5"}), 5);
  EXPECT_EQ(chunk({.bert = "1x64", .sequence = "8", .batch = "2", .head_chunk = "5"}), 5);
  EXPECT_EQ(chunk({.gpt = "1x64", .sequence = "1024", .batch = "4"}), 2048);
}

TEST(ModelSpec, TablesOfALlamaAreInBlocksAsSaid) {
  const auto blocks = [](const std::string& rows) {
    const ModelWords words{.model = "llama3.2-1b", .sequence = "8", .table_rows = rows};
    const Graph graph = build(model_spec(words, DataType::bf16).value());
    return std::count_if(graph.ops.begin(), graph.ops.end(),
                         [](const Op& op) { return op.kernel == "head_statistics"; });
  };
  EXPECT_EQ(blocks(""), 8);  // of 128,256 rows
  EXPECT_EQ(blocks("65536"), 2);
  EXPECT_EQ(blocks("0"), 0);
  expect_refused({.model = "llama3.2-1b", .table_rows = "-1"}, "--table-rows (0: whole tables): \"-1\"");
  expect_refused({.gpt = "1x64", .table_rows = "2"}, "--table-rows 2: the tables of GPT-2 are whole");
  expect_refused({.table_rows = "2"}, "--table-rows 2: a saved graph has its own");
}

TEST(ModelSpec, ABertKeepsTheTokensAsked) {
  const auto rows = [](const std::string& share) {
    const ModelWords words{.bert = "1x64", .sequence = "8", .batch = "2", .keep_tokens = share};
    const Graph graph = build(model_spec(words, DataType::f32).value());
    return graph.tensor(test::tensor_named(graph, "micro.0.layer.0.mlp.up")).shape[0];
  };
  EXPECT_EQ(rows(""), 8);
  EXPECT_EQ(rows("1"), 8);
  EXPECT_EQ(rows("0.25"), 2);
  for (const char* share : {"0", "1.5", "nan", "half", "0.5x"})
    expect_refused({.bert = "1x64", .keep_tokens = share},
                   "--keep-tokens: \"" + std::string(share) + "\" is no share of the tokens above 0");
  expect_refused({.keep_tokens = "0.5"}, "--keep-tokens 0.5: a saved graph has its own");
  const ModelWords gpt{.gpt = "1x64", .sequence = "8", .batch = "2", .keep_tokens = "0.5"};
  test::expect_refused([&] { build(model_spec(gpt, DataType::f32).value()); },
                       "gpt: keep_tokens is 0.5, and");
}

TEST(ModelSpec, MomentsAreOfTheTypeAsked) {
  const auto type = [](const std::string& moments) {
    const ModelWords words{.gpt = "1x64", .sequence = "8", .batch = "2", .moments = moments};
    const Graph graph = build(model_spec(words, DataType::bf16).value());
    return graph.tensor(test::tensor_named(graph, "wpe.weight.adam_m")).type;
  };
  EXPECT_EQ(type(""), DataType::f32);
  EXPECT_EQ(type("bf16"), DataType::bf16);
  EXPECT_EQ(type("8bit"), DataType::u8);
}

TEST(ModelSpec, RefusesHeadsThatDoNotDivide) {
  expect_refused({.gpt = "2x32"}, "width 32 is smaller than a head of 64; give --heads");
  expect_refused({.gpt = "2x100", .heads = "3"}, "width 100 is not divisible by 3 heads; give --heads");
  expect_refused({.gpt = "2x200"}, "width 200 is not divisible by 3 heads");
}

TEST(ModelSpec, RefusesBadNumbersByTheirOption) {
  const std::string size = "2x64";
  expect_refused({.gpt = size, .heads = "two"}, "--heads: \"two\" is no whole number from 1 to 16777216");
  expect_refused({.gpt = size, .sequence = "0"}, "--sequence: \"0\"");
  expect_refused({.gpt = size, .batch = "-1"}, "--batch: \"-1\"");
  expect_refused({.gpt = size, .batch = "1.5"}, "--batch: \"1.5\"");
  expect_refused({.gpt = size, .micro_batches = "0"}, "--micro-batches: \"0\"");
  expect_refused({.gpt = size, .batch = "6", .micro_batches = "4"},
                 "--micro-batches 4 does not divide the batch of 6; give a divisor");
  expect_refused({.gpt = size, .gradient_groups = "0"}, "--gradient-groups: \"0\"");
  expect_refused(
      {.gpt = size, .micro_batches = "4", .gradient_groups = "8"},
      "--gradient-groups 8 is no power of two that divides --micro-batches 4; give one, at most 4");
  expect_refused({.gradient_groups = "2"}, "--gradient-groups 2: a saved graph has its own");
  expect_refused({.gpt = size, .head_chunk = "0"}, "--head-chunk: \"0\"");
  expect_refused({.head_chunk = "2"}, "--head-chunk 2: a saved graph has its own");
  expect_refused({.gpt = size, .vocabulary = "99999999999"}, "--vocabulary: \"99999999999\"");
  expect_refused({.gpt = size, .moments = "4bit"}, "--moments: \"4bit\" is no type of moments");
  expect_refused({.moments = "8bit"}, "--moments 8bit: a saved graph has its own");
  expect_refused({.gpt = size, .code_activations = "5"}, "--code-activations: \"5\" are no codes");
  expect_refused({.code_activations = "8"}, "--code-activations 8: a saved graph has its own");
  expect_refused({.gpt = size, .type = "f64"}, "--type: \"f64\" is no work type; give f32, bf16 or fp16");
  const auto largest =
      model_spec({.gpt = "1024x1048576", .sequence = "16777216", .batch = "16777216"}, DataType::f32);
  test::expect_refused([&] { build(largest.value()); }, "larger than any machine");
}

TEST(ModelSpec, RefusesTwoModelsAndStrayOptions) {
  expect_refused({.gpt = "2x64", .bert = "base"}, "--gpt, --bert and --model each name a model");
  expect_refused({.heads = "2"}, "--heads 2: a saved graph has its own");
  expect_refused({.sequence = "2"}, "--sequence 2");
  expect_refused({.batch = "2"}, "--batch 2");
  expect_refused({.micro_batches = "2"}, "--micro-batches 2: a saved graph has its own");
  expect_refused({.vocabulary = "2"}, "--vocabulary 2");
  expect_refused({.type = "f32"}, "--type f32");
}

TEST(ModelSpec, TakesASizeOfTheLadder) {
  const GptSize size{"", 30, 2560, 32};
  const ModelSpec spec = model_spec(size, {.batch = "2"}, DataType::bf16);
  EXPECT_EQ(spec.config.heads, 32);
  EXPECT_EQ(spec.config.layers, 30);
  EXPECT_EQ(spec.config.batch, 2);
  test::expect_refused([&] { model_spec(size, {.heads = "2"}, DataType::f32); }, "--heads 2: --max-model");
}

}  // namespace
}  // namespace stowage
