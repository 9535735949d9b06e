// Files of Llama and Qwen3, made here, read and written.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "stowage/model_files.h"
#include "tests/model_files/model_graphs.h"
#include "tests/support/expect_refused.h"
#include "tests/support/temporary_folder.h"

namespace stowage {
namespace {

namespace fs = std::filesystem;
using test::expect_refused;
using test::Values;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// `type` and `class_name` of a model with 2 layers of 4 heads of 4.
std::string tiny_config(const std::string& type, const std::string& class_name, bool tied,
                        const std::string& word = "bfloat16") {
  return fmt::format(R"({{"architectures": ["{}"], "model_type": "{}", "hidden_size": 8, "head_dim": 4,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 12,
  "vocab_size": 10, "max_position_embeddings": 6, "torch_dtype": "{}", "tie_word_embeddings": {}}})",
                     class_name, type, word, tied);
}
const std::string qwen_text = tiny_config("qwen3", "Qwen3ForCausalLM", true);
const std::string llama_tiny = tiny_config("llama", "LlamaForCausalLM", false);

// `rows`: of a block of the tables; 0: they are whole.
Graph graph_of(const ModelDescription& model, DataType type = DataType::f32, std::int64_t padded = 0,
               std::int64_t rows = 0) {
  GraphBuilder builder(type);
  ModelConfig config = model.config;
  config.batch = 1;
  config.table_rows = rows;
  config.padded_vocabulary = padded;
  const BuiltModel built = llama(builder, config);
  return builder.finish(built.loss, AdamW{});
}

using Shapes = std::vector<std::pair<std::string, std::vector<std::int64_t>>>;

// Returns the tensors that transformers writes for a tiny model, last layers first: no order of ours.
Shapes shapes_of(const ModelDescription& model) {
  Shapes shapes = {{"model.norm.weight", {8}}, {"model.embed_tokens.weight", {10, 8}}};
  for (int layer = 1; layer >= 0; --layer) {
    const std::string prefix = fmt::format("model.layers.{}.", layer);
    const std::string attention = prefix + "self_attn.";
    if (model.config.head_norms)
      for (const char* norm : {"k_norm", "q_norm"}) shapes.push_back({attention + norm + ".weight", {4}});
    shapes.push_back({attention + "v_proj.weight", {8, 8}});
    shapes.push_back({attention + "q_proj.weight", {16, 8}});
    shapes.push_back({attention + "k_proj.weight", {8, 8}});
    for (const auto& [name, rows] : {std::pair{"q", 16}, {"k", 8}, {"v", 8}})
      if (model.config.attention_bias) shapes.push_back({attention + name + "_proj.bias", {rows}});
    shapes.push_back({attention + "o_proj.weight", {8, 16}});
    shapes.push_back({prefix + "mlp.gate_proj.weight", {12, 8}});
    shapes.push_back({prefix + "mlp.up_proj.weight", {12, 8}});
    shapes.push_back({prefix + "mlp.down_proj.weight", {8, 12}});
    shapes.push_back({prefix + "input_layernorm.weight", {8}});
    shapes.push_back({prefix + "post_attention_layernorm.weight", {8}});
  }
  if (!model.config.tied) shapes.push_back({"lm_head.weight", {10, 8}});
  return shapes;
}

// Returns made-up numbers that depend on the name, in f32 or its upper half.
std::vector<std::byte> values_of(const std::string& name, std::size_t count, StoredType type) {
  std::size_t state = std::hash<std::string>{}(name);
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    const float value = static_cast<float>(static_cast<std::int32_t>(state >> 32U)) * 0x1p-30F;
    const auto* from = reinterpret_cast<const std::byte*>(&value);
    bytes.insert(bytes.end(), from + (type == StoredType::bf16 ? 2 : 0), from + 4);
  }
  return bytes;
}

std::size_t count_of(const std::vector<std::int64_t>& shape) {
  std::size_t count = 1;
  for (const std::int64_t extent : shape) count *= static_cast<std::size_t>(extent);
  return count;
}

// `named`: the name by which the values are made, if it is another one.
void write_tensors(const std::string& path, const Shapes& shapes, StoredType type,
                   const std::map<std::string, std::string>& named = {}) {
  SafetensorsHeader header;
  header.metadata = {{"format", "pt"}, {"note", "kept"}};
  for (const auto& [name, shape] : shapes) header.tensors.push_back({name, type, shape, 0, 0});
  // Padded more than needed: a header that Stowage does not make.
  std::string beginning = safetensors_beginning(header) + "        ";
  const std::size_t bytes = beginning.size() - 8;
  for (std::size_t i = 0; i < 8; ++i) beginning[i] = static_cast<char>(bytes >> 8 * i & 0xffU);
  header.data_offset = beginning.size();
  SafetensorsWriter writer(path, header, beginning);
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const auto other = named.find(shapes[i].first);
    const std::string& name = other == named.end() ? shapes[i].first : other->second;
    writer.write(i, 0, values_of(name, count_of(shapes[i].second), type));
  }
  writer.commit();
}

// A folder of one file.
std::string one_file(const TemporaryFolder& folder, const std::string& config, const Shapes& shapes,
                     StoredType type = StoredType::bf16,
                     const std::map<std::string, std::string>& named = {}) {
  const std::string path = folder.file("source");
  fs::remove_all(path);
  fs::create_directory(path);
  std::ofstream(path + "/config.json") << config;
  write_tensors(path + "/model.safetensors", shapes, type, named);
  return path;
}

// A folder of two files with an index.
std::string two_files(const TemporaryFolder& folder, const std::string& config, const Shapes& shapes,
                      StoredType type) {
  const std::string path = folder.file("source");
  fs::create_directory(path);
  std::ofstream(path + "/config.json") << config;
  const auto middle = shapes.begin() + 5;
  const Shapes parts[] = {{shapes.begin(), middle}, {middle, shapes.end()}};
  const std::string names[] = {"part-b.safetensors", "part-a.safetensors"};
  std::string places;
  for (std::size_t i = 0; i < 2; ++i) {
    write_tensors(path + "/" + names[i], parts[i], type);
    for (const auto& [name, shape] : parts[i])
      places += fmt::format("{}\n\"{}\": \"{}\"", places.empty() ? "" : ",", name, names[i]);
  }
  std::ofstream(path + "/model.safetensors.index.json")
      << R"({"metadata": {"total_parameters": 5, "total_size": 7}, "weight_map": {)" << places << "}}";
  return path;
}

// Reads the folder into a graph of `type` and writes it again; returns the new folder.
std::string exported(const TemporaryFolder& folder, const std::string& source, DataType type,
                     SaveOptions options = {}, std::int64_t padded = 0, std::int64_t rows = 0) {
  const ModelDescription model = read_model_description(source);
  const TensorFiles files(source);
  check_sizes(files, model);
  const Graph graph = graph_of(model, type, padded, rows);
  Values values(graph, 64);
  EXPECT_THAT(load_model(files, model, graph, values.access()), IsEmpty());
  const std::string path = folder.file("export");
  fs::remove_all(path);
  fs::create_directory(path);
  if (options.type != SavedType::usual || options.shard_bytes > 1) options.source = &files;
  save_model(path, model, graph, values.access(), options);
  return path;
}

void expect_same_files(const std::string& a, const std::string& b) {
  std::size_t count = 0;
  for (const auto& entry : fs::directory_iterator(a)) {
    const std::string name = entry.path().filename().string();
    EXPECT_TRUE(contents_of(a + "/" + name) == contents_of(b + "/" + name)) << name;
    ++count;
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(b), fs::directory_iterator()), std::ptrdiff_t(count));
}

TEST(LlamaFiles, WithoutTrainingAreWrittenAsTheyWereRead) {
  struct Types {
    StoredType stored;
    DataType type;
  };
  for (const std::string& config : {qwen_text, llama_tiny, tiny_config("qwen2", "Qwen2ForCausalLM", false)}) {
    const Shapes shapes = shapes_of(model_description_from_json(config));
    for (const auto& [stored, type] :
         {Types{StoredType::bf16, DataType::bf16}, {StoredType::f32, DataType::f32}}) {
      const TemporaryFolder folder;
      const std::string source = one_file(folder, config, shapes, stored);
      expect_same_files(source, exported(folder, source, type));
    }
    for (const auto& [stored, type] :
         {Types{StoredType::bf16, DataType::f32}, {StoredType::f32, DataType::bf16}}) {
      const TemporaryFolder folder;
      const std::string source = two_files(folder, config, shapes, stored);
      expect_same_files(source, exported(folder, source, type, {}, 16));
      expect_same_files(source, exported(folder, source, type, {}, 16, 4));
    }
  }
}

TEST(LlamaFiles, BlocksOfATableAreRowsOfOneTensor) {
  const TemporaryFolder folder;
  const ModelDescription model = model_description_from_json(llama_tiny);
  const std::string path = one_file(folder, llama_tiny, shapes_of(model), StoredType::f32);
  const TensorFiles files(path);
  const Graph graph = graph_of(model, DataType::f32, 13, 4);
  Values values(graph, 96);
  EXPECT_THAT(load_model(files, model, graph, values.access()), IsEmpty());
  for (const char* name : {"embed_tokens.weight", "lm_head.weight"}) {
    std::vector<std::byte> joined;
    for (const int first : {0, 4, 8}) {
      const auto& rows = values.of(fmt::format("{}.rows.{}", name, first));
      joined.insert(joined.end(), rows.begin(), rows.end());
    }
    const bool head = name == std::string_view("lm_head.weight");
    std::vector<std::byte> expected = test::bytes_of(files, std::string(head ? "" : "model.") + name);
    expected.resize(13 * 8 * sizeof(float));  // padding is 0
    EXPECT_EQ(joined, expected) << name;
  }
  // A graph that lacks a block is another model's.
  Graph without = graph;
  for (Tensor& tensor : without.tensors)
    if (tensor.name == "lm_head.weight.rows.8") tensor.kind = TensorKind::activation;
  expect_refused(
      [&] { check_model(files, model, without); },
      "'lm_head.weight.rows.4' is the last of 'lm_head.weight', whose rows from 8 on are in no block");
  for (Tensor& tensor : without.tensors)
    if (tensor.name == "lm_head.weight.rows.4") tensor.name = "lm_head.weight.rows.5";
  expect_refused([&] { check_model(files, model, without); }, "does not begin at row 4");
}

TEST(LlamaFiles, QueryKeyAndValueAreRowsOfOneParameter) {
  const TemporaryFolder folder;
  const ModelDescription model = model_description_from_json(qwen_text);
  const std::string path = one_file(folder, qwen_text, shapes_of(model), StoredType::f32);
  const Graph graph = graph_of(model);
  Values values(graph, 96);
  const TensorFiles files(path);
  load_model(files, model, graph, values.access());
  std::vector<std::byte> expected;
  for (const char* part : {"q", "k", "v"}) {
    const auto bytes = test::bytes_of(files, fmt::format("layers.1.self_attn.{}_proj.weight", part));
    expected.insert(expected.end(), bytes.begin(), bytes.end());
  }
  EXPECT_EQ(values.of("layers.1.self_attn.qkv_proj.weight"), expected);
  EXPECT_EQ(values.of("layers.0.mlp.down_proj.weight"),
            test::bytes_of(files, "layers.0.mlp.down_proj.weight"));
}

TEST(LlamaFiles, ATiedHeadAndOldBuffersStay) {
  const TemporaryFolder folder;
  Shapes shapes = shapes_of(model_description_from_json(qwen_text));
  shapes.push_back({"lm_head.weight", {10, 8}});
  shapes.insert(shapes.begin(), {"model.layers.0.self_attn.rotary_emb.inv_freq", {2}});
  const std::map<std::string, std::string> tied = {{"lm_head.weight", "model.embed_tokens.weight"}};
  const std::string path = one_file(folder, qwen_text, shapes, StoredType::bf16, tied);
  expect_same_files(path, exported(folder, path, DataType::bf16));
  const std::string untied = one_file(folder, qwen_text, shapes);
  expect_refused([&] { exported(folder, untied, DataType::f32); }, "\"lm_head.weight\" differs from");
}

TEST(LlamaFiles, NamesMayLackTheirPrefix) {
  const TemporaryFolder folder;
  Shapes shapes = shapes_of(model_description_from_json(llama_tiny));
  for (auto& [name, shape] : shapes)
    if (name.starts_with("model.")) name = name.substr(6);
  const std::string path = one_file(folder, llama_tiny, shapes);
  expect_same_files(path, exported(folder, path, DataType::bf16));
}

TEST(LlamaFiles, RefusesTensorsThatDoNotFit) {
  const TemporaryFolder folder;
  const Shapes good = shapes_of(model_description_from_json(llama_tiny));
  const auto refused = [&](const Shapes& shapes, const std::string& words) {
    const std::string path = one_file(folder, llama_tiny, shapes);
    expect_refused([&] { exported(folder, path, DataType::f32); }, words);
  };
  Shapes without_head = good;
  without_head.pop_back();
  refused(without_head, "no tensor \"lm_head.weight\"");
  const auto with_shape = [&](const std::string& ending, std::vector<std::int64_t> shape) {
    Shapes shapes = good;
    for (auto& [name, of] : shapes)
      if (name.ends_with(ending)) of = shape;
    return shapes;
  };
  refused(with_shape("k_proj.weight", {16, 8}),
          "k_proj.weight\" has the shape [16, 8], and config.json asks for [8, 8]");
  refused(with_shape("down_proj.weight", {8, 13}), "down_proj.weight\" has the shape [8, 13]");
  refused(with_shape("embed_tokens.weight", {11, 8}), "embed_tokens.weight\" has the shape [11, 8]");
  Shapes more = good;
  more.push_back({"model.layers.0.self_attn.q_norm.weight", {4}});
  refused(more, "q_norm.weight\" is none of Llama with 2 layers");
}

float real_of(const std::vector<std::byte>& bytes, std::size_t index) {
  float value = 0;
  std::memcpy(&value, bytes.data() + 4 * index, 4);
  return value;
}

TEST(LlamaFiles, AreWrittenInTheTypeThatIsAskedFor) {
  const TemporaryFolder folder;
  const Shapes shapes = shapes_of(model_description_from_json(llama_tiny));
  const std::string path = two_files(folder, llama_tiny, shapes, StoredType::f32);
  const TensorFiles before(path);
  const std::string out = exported(folder, path, DataType::bf16, {.type = SavedType::bf16});
  EXPECT_EQ(contents_of(out + "/config.json"), llama_tiny);  // which says bfloat16 already
  const TensorFiles after(out);
  Bytes total = 0;
  for (const std::string_view name : after.names()) {
    ASSERT_EQ(after.find(name)->type, StoredType::bf16);
    total += after.find(name)->bytes;
  }
  const std::string index = contents_of(out + "/model.safetensors.index.json");
  EXPECT_THAT(index, HasSubstr(fmt::format("\"total_size\": {}", total)));
  EXPECT_THAT(index, HasSubstr("\"total_parameters\": 5"));
  // Within half a unit of the last place: rounded, and not cut off.
  const auto table = test::bytes_of(before, "lm_head.weight");
  const auto rounded = test::bytes_of(after, "lm_head.weight");
  for (std::size_t i = 0; i < table.size() / 4; ++i) {
    std::vector<std::byte> widened(4);
    std::memcpy(widened.data() + 2, rounded.data() + 2 * i, 2);
    const float exact = real_of(table, i);
    EXPECT_LE(std::abs(real_of(widened, 0) - exact), std::abs(exact) * 0x1p-8F);
  }
  const std::string wide = exported(folder, path, DataType::bf16, {.type = SavedType::f32});
  EXPECT_THAT(contents_of(wide + "/config.json"), HasSubstr("\"torch_dtype\": \"float32\""));
  EXPECT_EQ(test::bytes_of(TensorFiles(wide), "lm_head.weight"), table);
  EXPECT_EQ(contents_of(wide + "/part-a.safetensors"), contents_of(path + "/part-a.safetensors"));
}

TEST(LlamaFiles, WithoutASourceAreThoseOfTheGraph) {
  const TemporaryFolder folder;
  const std::string path = one_file(folder, qwen_text, shapes_of(model_description_from_json(qwen_text)));
  const std::string out = exported(folder, path, DataType::bf16, {.shard_bytes = 1});
  EXPECT_THAT(contents_of(out + "/config.json"), HasSubstr("\"torch_dtype\": \"float32\""));
  const TensorFiles files(out);
  EXPECT_EQ(files.find("norm.weight")->type, StoredType::f32);
  EXPECT_THAT(check_model(files, read_model_description(out), graph_of(read_model_description(out))),
              IsEmpty());
  const ModelDescription model = read_model_description(path);
  const Graph graph = graph_of(model);
  Values values(graph);
  expect_refused([&] { save_model(out, model, graph, values.access(), {.type = SavedType::as_read}); },
                 "give SaveOptions::source");
  const TensorFiles other(test::fixture("gpt2"));
  expect_refused([&] { save_model(out, model, graph, values.access(), {.source = &other}); },
                 "has no place in the model");
}

// GPT-2 and BERT, too, if the caller gives their files.
TEST(LlamaFiles, OtherFamiliesAreWrittenAsTheyWereReadIfAskedFor) {
  for (const char* name : {"gpt2", "gpt2_sharded", "bert", "bert_half"}) {
    const TemporaryFolder folder;
    const ModelDescription model = read_model_description(test::fixture(name));
    const bool gpt = model.family == &gpt_family;
    const Graph graph = gpt ? test::gpt_graph(model, model.config.vocabulary, 9, DataType::bf16)
                            : test::bert_parameters(model, model.config.vocabulary);
    const TensorFiles files(test::fixture(name));
    Values values(graph);
    load_model(files, model, graph, values.access());
    save_model(folder.file(""), model, graph, values.access(),
               {.type = SavedType::as_read, .source = &files});
    for (const auto& entry : fs::directory_iterator(test::fixture(name))) {
      const std::string file = entry.path().filename().string();
      if (!file.starts_with("model")) continue;
      EXPECT_TRUE(contents_of(folder.file(file)) == contents_of(entry.path().string())) << name << file;
    }
  }
}

}  // namespace
}  // namespace stowage
