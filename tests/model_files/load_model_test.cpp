#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "stowage/model_files.h"
#include "tests/model_files/model_graphs.h"
#include "tests/support/expect_refused.h"
#include "tests/support/temporary_folder.h"

namespace stowage {
namespace {

using test::copy_renamed;
using test::expect_refused;
using test::fixture;
using test::Values;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// The f32 at `index` of a stored tensor.
float stored_real(const TensorFiles& files, const std::string& name, std::size_t index) {
  float value = 0;
  std::memcpy(&value, test::bytes_of(files, name).data() + 4 * index, sizeof value);
  return value;
}

const ModelDescription gpt_described = read_model_description(fixture("gpt2"));
const ModelDescription bert_described = read_model_description(fixture("bert"));

std::vector<std::vector<std::byte>> loaded(const TensorFiles& files, const ModelDescription& model,
                                           const Graph& graph, Bytes piece = Bytes{1} << 40U) {
  Values values(graph, piece);
  EXPECT_THAT(load_model(files, model, graph, values.access()), IsEmpty());
  return values.all();
}

TEST(CheckSizes, TakesTheFilesOfTheModel) {
  for (const char* folder : {"gpt2", "gpt2_sharded", "bert", "bert_half"})
    check_sizes(TensorFiles(fixture(folder)), read_model_description(fixture(folder)));
}

TEST(CheckSizes, NamesTheFirstTensorThatDiffers) {
  const auto refused = [](const char* folder, ModelDescription model, auto field, std::int64_t value,
                          const std::string& words) {
    model.config.*field = value;
    expect_refused([&] { check_sizes(TensorFiles(fixture(folder)), model); }, words);
  };
  const auto layers = &ModelConfig::layers;
  refused("gpt2", gpt_described, layers, std::int64_t{1} << 40,
          "no tensor \"transformer.h.2.mlp.c_fc.weight\", and config.json asks for 1099511627776 layers");
  refused("bert", bert_described, layers, 3, "no tensor \"bert.encoder.layer.2.intermediate.dense.weight\"");
  for (const auto field : {&ModelConfig::vocabulary, &ModelConfig::width}) {
    refused("gpt2", gpt_described, field, 1 << 20,
            "wte.weight\" has the shape [256, 8], and config.json asks");
    refused("bert", bert_described, field, 1 << 20, "word_embeddings.weight\" has the shape [");
  }
  refused("gpt2", gpt_described, &ModelConfig::sequence, 33, "wpe.weight\" has the shape [32, 8]");
  refused("bert", bert_described, &ModelConfig::sequence, 1, "position_embeddings.weight\" has the shape");
}

TEST(LoadModel, ReadsGptAsItIs) {
  const Graph graph = test::gpt_graph(gpt_described, 256, 32);
  for (const char* folder : {"gpt2", "gpt2_sharded"}) {
    const TensorFiles files(fixture(folder));
    Values values(graph);
    load_model(files, gpt_described, graph, values.access());
    for (const Tensor& tensor : graph.tensors) {
      if (tensor.kind != TensorKind::parameter) continue;
      EXPECT_EQ(values.of(tensor.name), test::bytes_of(files, "transformer." + tensor.name)) << tensor.name;
    }
  }
}

TEST(LoadModel, PadsTheVocabularyAndReadsTheFirstPositions) {
  const Graph graph = test::gpt_graph(gpt_described, 300, 20);
  const TensorFiles files(fixture("gpt2"));
  for (const Bytes piece : {Bytes{64}, Bytes{1} << 40U}) {
    Values values(graph, piece);
    load_model(files, gpt_described, graph, values.access());
    const auto table = test::bytes_of(files, "transformer.wte.weight");
    const auto& ours = values.of("wte.weight");
    EXPECT_TRUE(std::equal(table.begin(), table.end(), ours.begin()));
    EXPECT_THAT(std::vector(ours.begin() + static_cast<std::ptrdiff_t>(table.size()), ours.end()),
                Each(std::byte{0}));
    const auto positions = test::bytes_of(files, "transformer.wpe.weight");
    EXPECT_EQ(values.of("wpe.weight"), std::vector(positions.begin(), positions.begin() + 20 * 8 * 4));
  }
}

TEST(LoadModel, TransposesBertAndJoinsQueryKeyAndValue) {
  const Graph graph = test::bert_parameters(bert_described, 40);
  const TensorFiles files(fixture("bert"));
  Values values(graph);
  EXPECT_THAT(load_model(files, bert_described, graph, values.access()), IsEmpty());
  const std::string self = "bert.encoder.layer.1.attention.self.";
  const std::size_t width = 8;
  const std::array<std::string, 3> names = {"query", "key", "value"};
  for (std::size_t part = 0; part < 3; ++part) {
    for (std::size_t out = 0; out < width; ++out) {
      for (std::size_t in = 0; in < width; ++in)
        EXPECT_EQ(values.real(self + "query_key_value.weight", in * 3 * width + part * width + out),
                  stored_real(files, self + names[part] + ".weight", out * width + in));
      EXPECT_EQ(values.real(self + "query_key_value.bias", part * width + out),
                stored_real(files, self + names[part] + ".bias", out));
    }
  }
  const std::string up = "bert.encoder.layer.0.intermediate.dense.weight";
  EXPECT_EQ(values.real(up, 3 * 32 + 29), stored_real(files, up, 29 * 8 + 3));
  for (const char* same :
       {"bert.embeddings.word_embeddings.weight", "bert.embeddings.token_type_embeddings.weight",
        "cls.predictions.bias", "bert.embeddings.LayerNorm.weight"})
    EXPECT_EQ(values.of(same), test::bytes_of(files, same));
}

TEST(LoadModel, PiecesOfAnySizeAreTheSame) {
  const Graph gpt_model = test::gpt_graph(gpt_described, 270, 16);
  const Graph bert_model = test::bert_parameters(bert_described, 48);
  const TensorFiles gpt_files(fixture("gpt2")), bert_files(fixture("bert"));
  for (const Bytes piece : {64, 192, 1024}) {
    EXPECT_EQ(loaded(gpt_files, gpt_described, gpt_model, piece),
              loaded(gpt_files, gpt_described, gpt_model));
    EXPECT_EQ(loaded(bert_files, bert_described, bert_model, piece),
              loaded(bert_files, bert_described, bert_model));
  }
}

TEST(LoadModel, ReadsHalvesAsTheNearestOfF32) {
  const Graph graph = test::bert_parameters(bert_described, 40);
  Values half(graph), single(graph);
  load_model(TensorFiles(fixture("bert_half")), bert_described, graph, half.access());
  load_model(TensorFiles(fixture("bert")), bert_described, graph, single.access());
  const std::string name = "bert.encoder.layer.1.output.dense.weight";
  for (std::size_t i = 0; i < 256; ++i) {
    EXPECT_NEAR(half.real(name, i), single.real(name, i), 1e-3);
    EXPECT_NE(half.real(name, i), 0);
  }
}

TEST(LoadModel, TakesOlderNames) {
  const TemporaryFolder folder;
  copy_renamed(TensorFiles(fixture("gpt2")), folder.file("gpt"),
               [](const std::string& name) { return name.substr(std::string("transformer.").size()); });
  EXPECT_EQ(loaded(TensorFiles(folder.file("gpt")), gpt_described, test::gpt_graph(gpt_described, 256, 32)),
            loaded(TensorFiles(fixture("gpt2")), gpt_described, test::gpt_graph(gpt_described, 256, 32)));
  copy_renamed(TensorFiles(fixture("bert")), folder.file("bert"), [](const std::string& name) {
    if (name.ends_with("LayerNorm.weight")) return name.substr(0, name.size() - 6) + "gamma";
    if (name.ends_with("LayerNorm.bias")) return name.substr(0, name.size() - 4) + "beta";
    return name;
  });
  EXPECT_EQ(
      loaded(TensorFiles(folder.file("bert")), bert_described, test::bert_parameters(bert_described, 40)),
      loaded(TensorFiles(fixture("bert")), bert_described, test::bert_parameters(bert_described, 40)));
}

// As DistributedDataParallel, torch.compile and a module around the model have them.
TEST(LoadModel, TakesNamesBehindThoseOfWrappers) {
  const TemporaryFolder folder;
  const Graph graph = test::gpt_graph(gpt_described, 256, 32);
  const auto expected = loaded(TensorFiles(fixture("gpt2")), gpt_described, graph);
  const auto expect_taken = [&](test::Rename rename) {
    copy_renamed(TensorFiles(fixture("gpt2")), folder.file("wrapped"), rename);
    EXPECT_EQ(loaded(TensorFiles(folder.file("wrapped")), gpt_described, graph), expected);
  };
  expect_taken([](const std::string& name) { return "module." + name; });
  expect_taken([](const std::string& name) { return "_orig_mod.module." + name; });
  expect_taken(
      [](const std::string& name) { return "model." + name.substr(std::string("transformer.").size()); });
  copy_renamed(TensorFiles(fixture("gpt2")), folder.file("wrapped"),
               [](const std::string& name) { return "my." + name; });
  expect_refused([&] { loaded(TensorFiles(folder.file("wrapped")), gpt_described, graph); },
                 "(the files have \"my.transformer.h.0.attn.c_attn.bias\" for example)");
}

TEST(LoadModel, TakesATiedTableUnderItsOtherNameAlone) {
  const TemporaryFolder folder;
  const Graph graph = test::gpt_graph(gpt_described, 256, 32);
  copy_renamed(TensorFiles(fixture("gpt2")), folder.file("gpt"), [](const std::string& name) {
    return name == "transformer.wte.weight" ? std::string("lm_head.weight") : name;
  });
  EXPECT_EQ(loaded(TensorFiles(folder.file("gpt")), gpt_described, graph),
            loaded(TensorFiles(fixture("gpt2")), gpt_described, graph));
  const Graph encoder = test::bert_parameters(bert_described, 40);
  copy_renamed(TensorFiles(fixture("bert")), folder.file("bert"), [](const std::string& name) {
    return name.ends_with("word_embeddings.weight") ? std::string("cls.predictions.decoder.weight") : name;
  });
  EXPECT_EQ(loaded(TensorFiles(folder.file("bert")), bert_described, encoder),
            loaded(TensorFiles(fixture("bert")), bert_described, encoder));
}

TEST(LoadModel, KeepsWhatAnEncoderAloneLacks) {
  const TemporaryFolder folder;
  copy_renamed(TensorFiles(fixture("bert")), folder.file("f"), [](const std::string& name) {
    return name.starts_with("cls.") || name.starts_with("bert.pooler.") ? "" : name.substr(5);
  });
  const Graph graph = test::bert_parameters(bert_described, 40);
  Values values(graph);
  EXPECT_THAT(
      load_model(TensorFiles(folder.file("f")), bert_described, graph, values.access()),
      ElementsAre("bert.pooler.dense.weight", "bert.pooler.dense.bias",
                  "cls.predictions.transform.dense.weight", "cls.predictions.transform.dense.bias",
                  "cls.predictions.transform.LayerNorm.weight", "cls.predictions.transform.LayerNorm.bias",
                  "cls.predictions.bias", "cls.seq_relationship.weight", "cls.seq_relationship.bias"));
  EXPECT_THAT(values.of("cls.seq_relationship.weight"), Each(std::byte{0xa5}));
}

// A file of the fixture's tensors with one more.
void add_tensor(const std::string& path, const StoredTensor& added, std::span<const std::byte> value) {
  const TensorFiles files(fixture("gpt2"));
  std::vector<StoredTensor> tensors;
  for (const std::string_view name : files.names()) tensors.push_back(*files.find(name));
  tensors.push_back(added);
  SafetensorsWriter writer(path, tensors);
  for (std::size_t i = 0; i + 1 < tensors.size(); ++i)
    writer.write(i, 0, test::bytes_of(files, tensors[i].name));
  writer.write(tensors.size() - 1, 0, value);
  writer.commit();
}

TEST(LoadModel, PassesOverMasksAndATiedHead) {
  const TemporaryFolder folder;
  const Graph graph = test::gpt_graph(gpt_described, 256, 32);
  const auto expected = loaded(TensorFiles(fixture("gpt2")), gpt_described, graph);
  const std::vector<std::byte> mask(9, std::byte{1});
  add_tensor(folder.file("mask"), {"transformer.h.0.attn.bias", StoredType::boolean, {1, 1, 3, 3}, 0, 0},
             mask);
  EXPECT_EQ(loaded(TensorFiles(folder.file("mask")), gpt_described, graph), expected);

  auto head = test::bytes_of(TensorFiles(fixture("gpt2")), "transformer.wte.weight");
  add_tensor(folder.file("tied"), {"lm_head.weight", StoredType::f32, {256, 8}, 0, 0}, head);
  EXPECT_EQ(loaded(TensorFiles(folder.file("tied")), gpt_described, graph), expected);
  // Equal values in another type, which holds them all.
  std::vector<std::byte> doubles(2 * head.size());
  for (std::size_t i = 0; i < head.size() / sizeof(float); ++i) {
    float value = 0;
    std::memcpy(&value, head.data() + sizeof(float) * i, sizeof value);
    const double wider = value;
    std::memcpy(doubles.data() + sizeof(double) * i, &wider, sizeof wider);
  }
  add_tensor(folder.file("wider"), {"lm_head.weight", StoredType::f64, {256, 8}, 0, 0}, doubles);
  EXPECT_EQ(loaded(TensorFiles(folder.file("wider")), gpt_described, graph), expected);
  doubles.front() ^= std::byte{1};
  add_tensor(folder.file("other"), {"lm_head.weight", StoredType::f64, {256, 8}, 0, 0}, doubles);
  expect_refused([&] { loaded(TensorFiles(folder.file("other")), gpt_described, graph); },
                 "\"lm_head.weight\" differs from");
  head.back() ^= std::byte{1};
  add_tensor(folder.file("untied"), {"lm_head.weight", StoredType::f32, {256, 8}, 0, 0}, head);
  expect_refused([&] { loaded(TensorFiles(folder.file("untied")), gpt_described, graph); },
                 "\"lm_head.weight\" differs from");
}

TEST(LoadModel, RefusesTensorsThatDoNotFit) {
  const TemporaryFolder folder;
  const Graph graph = test::gpt_graph(gpt_described, 256, 32);
  const auto refused = [&](test::Rename rename, const std::string& words) {
    copy_renamed(TensorFiles(fixture("gpt2")), folder.file("f"), rename);
    expect_refused([&] { check_model(TensorFiles(folder.file("f")), gpt_described, graph); }, words);
  };
  refused([](const std::string& n) { return n == "transformer.ln_f.bias" ? "" : n; },
          "no tensor \"transformer.ln_f.bias\"");
  refused([](const std::string& n) { return n == "transformer.ln_f.bias" ? "score" : n; }, "ln_f.bias");
  ModelDescription one = gpt_described;
  one.config.layers = 1;
  expect_refused([&] { check_model(TensorFiles(fixture("gpt2")), one, test::gpt_graph(one, 256, 32)); },
                 "\"transformer.h.1.attn.c_attn.bias\" is none of GPT-2 with 1 layers");
  ModelDescription longer = gpt_described;
  longer.config.sequence = 33;
  expect_refused([&] { check_model(TensorFiles(fixture("gpt2")), longer, graph); },
                 "\"transformer.wpe.weight\" has the shape [32, 8], and config.json asks for [33, 8]");
  const std::vector<std::byte> number(8);
  add_tensor(folder.file("whole"), {"wpe.weight", StoredType::i64, {1}, 0, 0}, number);
  expect_refused([&] { check_model(TensorFiles(folder.file("whole")), gpt_described, graph); },
                 "\"wpe.weight\" is none of");
  expect_refused(
      [&] {
        check_model(TensorFiles(fixture("bert")), bert_described,
                    test::bert_parameters(bert_described, 40, false));
      },
      "token_type_embeddings");
}

}  // namespace
}  // namespace stowage
