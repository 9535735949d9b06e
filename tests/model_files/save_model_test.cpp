#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "stowage/model_files.h"
#include "tests/model_files/model_graphs.h"
#include "tests/support/expect_refused.h"
#include "tests/support/temporary_folder.h"

namespace stowage {
namespace {

using test::fixture;
using test::Values;

// Reads the fixture's model into `graph` and writes it into `folder`.
ModelDescription round_trip(const std::string& name, const Graph& graph, const std::string& folder,
                            const SaveOptions& options = {}) {
  ModelDescription model = read_model_description(fixture(name));
  Values values(graph, 192);
  load_model(TensorFiles(fixture(name)), model, graph, values.access());
  std::filesystem::create_directory(folder);
  save_model(folder, model, graph, values.access(), options);
  return model;
}

// transformers made the fixtures.
TEST(SaveModel, WritesTheFileThatTransformersWrote) {
  const TemporaryFolder folder;
  const ModelDescription gpt = read_model_description(fixture("gpt2"));
  round_trip("gpt2", test::gpt_graph(gpt, 256, 32), folder.file("gpt"));
  EXPECT_EQ(contents_of(folder.file("gpt/model.safetensors")),
            contents_of(fixture("gpt2/model.safetensors")));
  EXPECT_EQ(read_model_description(folder.file("gpt")), gpt);

  const ModelDescription bert = read_model_description(fixture("bert"));
  round_trip("bert", test::bert_parameters(bert, 40), folder.file("bert"));
  EXPECT_EQ(contents_of(folder.file("bert/model.safetensors")),
            contents_of(fixture("bert/model.safetensors")));
}

// A graph of shorter samples: the rows that it lacks are those of the files.
TEST(SaveModel, PositionsBeyondTheGraphsStayAsTheyWereRead) {
  const TemporaryFolder folder;
  const ModelDescription gpt = read_model_description(fixture("gpt2"));
  const TensorFiles files(fixture("gpt2"));
  for (const DataType type : {DataType::f32, DataType::bf16, DataType::f16}) {
    const std::string to = folder.file(std::string(to_string(type)));
    round_trip("gpt2", test::gpt_graph(gpt, 256, 9, type), to, {.beyond = &files});
    EXPECT_EQ(contents_of(to + "/model.safetensors"), contents_of(fixture("gpt2/model.safetensors")));
    EXPECT_EQ(read_model_description(to), gpt);
  }
  const ModelDescription bert = read_model_description(fixture("bert_half"));
  ModelDescription shorter = bert;
  shorter.config.sequence = bert.config.sequence / 2;
  const TensorFiles halves(fixture("bert_half"));
  const Graph graph = test::bert_parameters(shorter, bert.config.vocabulary);
  round_trip("bert_half", graph, folder.file("bert"), {.beyond = &halves});
  const TensorFiles written(folder.file("bert"));
  const StoredTensor* table = written.find("bert.embeddings.position_embeddings.weight");
  ASSERT_EQ(table->shape[0], bert.config.sequence);
  const Graph whole = test::bert_parameters(bert, bert.config.vocabulary);
  Values read(whole), again(whole);
  load_model(halves, bert, whole, read.access());
  load_model(written, bert, whole, again.access());
  EXPECT_EQ(read.all(), again.all());
}

TEST(SaveModel, PositionsThatNobodyHasAreRefused) {
  const TemporaryFolder folder;
  const ModelDescription gpt = read_model_description(fixture("gpt2"));
  const Graph graph = test::gpt_graph(gpt, 256, 9);
  test::expect_refused([&] { round_trip("gpt2", graph, folder.file("m")); },
                       "fewer rows of 'transformer.wpe.weight'");
  const TensorFiles other(fixture("bert"));
  test::expect_refused([&] { round_trip("gpt2", graph, folder.file("n"), {.beyond = &other}); },
                       "no file has");
}

TEST(SaveModel, LeavesPaddingOut) {
  const TemporaryFolder folder;
  const ModelDescription bert = read_model_description(fixture("bert"));
  round_trip("bert", test::bert_parameters(bert, 64), folder.file("bert"));
  EXPECT_EQ(contents_of(folder.file("bert/model.safetensors")),
            contents_of(fixture("bert/model.safetensors")));
}

TEST(SaveModel, WritesTheMastersOfSplitWeights) {
  const TemporaryFolder folder;
  const ModelDescription gpt = read_model_description(fixture("gpt2"));
  const Graph graph = test::gpt_graph(gpt, 256, 32, DataType::bf16);
  round_trip("gpt2", graph, folder.file("m"));
  EXPECT_EQ(contents_of(folder.file("m/model.safetensors")), contents_of(fixture("gpt2/model.safetensors")));
  // Rounded to the nearest, and not cut off: the lower half has both signs.
  Values values(graph);
  load_model(TensorFiles(fixture("gpt2")), gpt, graph, values.access());
  const auto& low = values.of("wte.weight.low");
  int negative = 0;
  for (std::size_t i = 1; i < low.size(); i += 2) negative += static_cast<int>(low[i] >> 7U);
  EXPECT_GT(negative, 700);
  EXPECT_LT(negative, 1400);
}

TEST(SaveModel, WritesTheMastersOfHalves) {
  const TemporaryFolder folder;
  const ModelDescription gpt = read_model_description(fixture("gpt2"));
  round_trip("gpt2", test::gpt_graph(gpt, 256, 32, DataType::f16), folder.file("m"));
  EXPECT_EQ(contents_of(folder.file("m/model.safetensors")), contents_of(fixture("gpt2/model.safetensors")));
}

TEST(SaveModel, CutsIntoFilesWithAnIndex) {
  const TemporaryFolder folder;
  const ModelDescription gpt = read_model_description(fixture("gpt2"));
  round_trip("gpt2", test::gpt_graph(gpt, 256, 32), folder.file("m"), {.shard_bytes = 9000});
  EXPECT_FALSE(std::filesystem::exists(folder.file("m/model.safetensors")));
  EXPECT_TRUE(std::filesystem::exists(folder.file("m/model-00001-of-00002.safetensors")));
  const TensorFiles written(folder.file("m")), before(fixture("gpt2"));
  EXPECT_EQ(written.names(), before.names());
  Bytes total = 0;
  for (const std::string_view name : written.names()) {
    EXPECT_EQ(test::bytes_of(written, std::string(name)), test::bytes_of(before, std::string(name)));
    total += written.find(name)->bytes;
  }
  EXPECT_THAT(contents_of(folder.file("m/model.safetensors.index.json")),
              ::testing::HasSubstr("\"total_size\": " + std::to_string(total)));
}

TEST(SaveModel, ATensorLargerThanAFileHasItsOwn) {
  const TemporaryFolder folder;
  const ModelDescription gpt = read_model_description(fixture("gpt2"));
  round_trip("gpt2", test::gpt_graph(gpt, 256, 32), folder.file("m"), {.shard_bytes = 1});
  EXPECT_TRUE(std::filesystem::exists(folder.file("m/model-00028-of-00028.safetensors")));
  EXPECT_EQ(TensorFiles(folder.file("m")).size(), 28U);
}

// transformers knows no wrapper, and would start a model with such names at random.
TEST(SaveModel, NamesBehindAWrapperAreWrittenWithoutIt) {
  const TemporaryFolder folder;
  const ModelDescription model = read_model_description(fixture("gpt2"));
  const Graph graph = test::gpt_graph(model, 256, 32);
  test::copy_renamed(TensorFiles(fixture("gpt2")), folder.file("wrapped"),
                     [](const std::string& name) { return "_orig_mod.module." + name; });
  const TensorFiles source(folder.file("wrapped"));
  Values values(graph);
  load_model(source, model, graph, values.access());
  std::filesystem::create_directory(folder.file("written"));
  save_model(folder.file("written"), model, graph, values.access(), {.source = &source});
  EXPECT_TRUE(contents_of(folder.file("written/model.safetensors")) ==
              contents_of(fixture("gpt2/model.safetensors")));
}

TEST(SaveModel, WritesAShorterSequence) {
  const TemporaryFolder folder;
  ModelDescription model = read_model_description(fixture("gpt2"));
  const Graph graph = test::gpt_graph(model, 256, 20);
  Values values(graph);
  load_model(TensorFiles(fixture("gpt2")), model, graph, values.access());
  model.config.sequence = 20;
  std::filesystem::create_directory(folder.file("m"));
  save_model(folder.file("m"), model, graph, values.access());
  EXPECT_EQ(TensorFiles(folder.file("m")).find("transformer.wpe.weight")->shape,
            (std::vector<std::int64_t>{20, 8}));
  EXPECT_THAT(check_model(TensorFiles(folder.file("m")), read_model_description(folder.file("m")), graph),
              ::testing::IsEmpty());
}

TEST(SaveModel, RefusesHalfAModel) {
  const TemporaryFolder folder;
  const ModelDescription bert = read_model_description(fixture("bert"));
  const Graph graph = test::bert_parameters(bert, 40, false);
  Values values(graph);
  test::expect_refused([&] { save_model(folder.file(""), bert, graph, values.access()); },
                       "cls.seq_relationship");
  EXPECT_EQ(folder.entries(), 0U);
}

}  // namespace
}  // namespace stowage
