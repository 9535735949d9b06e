// train_gpt --init and --export from end to end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "src/tokens/shard_bytes.h"
#include "stowage/model_files.h"
#include "stowage/safetensors.h"
#include "tests/samples/run_program.h"
#include "tests/support/packed_shard.h"
#include "tests/support/temporary_folder.h"

namespace stowage::samples {
namespace {

using ::testing::HasSubstr;
using Words = std::vector<std::string>;

const std::string fixtures = std::string(STOWAGE_ROOT) + "/tests/fixtures/model_files/";

class TrainGptModelFiles : public ::testing::Test {
 protected:
  Words with(const Words& more) const {
    Words words = {"--data", text_, "--device", "simulated", "--batch", "2"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  void run(const Words& more) const { well(run_train_gpt(with(more))); }
  void expect_refused(const Words& more, const Words& parts) const {
    expect_refusal(run_train_gpt(with(more)), parts);
  }

  TemporaryFolder folder_;
  std::string text_ = folder_.make("text", std::string(3000, 'a') + std::string(3000, 'b'));
};

TEST_F(TrainGptModelFiles, WithoutTrainingTheFileStaysWhatItIs) {
  run({"--init", fixtures + "gpt2", "--steps", "0", "--export", folder_.file("out")});
  EXPECT_EQ(contents_of(folder_.file("out/model.safetensors")),
            contents_of(fixtures + "gpt2/model.safetensors"));
  EXPECT_EQ(read_model_description(folder_.file("out")), read_model_description(fixtures + "gpt2"));
}

// Llama in f32 and one file, Qwen3 in bf16 and several, as transformers saved them.
class TrainsARelativeOfLlama : public TrainGptModelFiles, public ::testing::WithParamInterface<std::string> {
 protected:
  static constexpr std::int32_t words = 300;  // of both models

  Words of_model(const Words& more) const {
    Words all = {"--data", shard_, "--device", "simulated", "--batch", "2", "--init", model_};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  static std::string tokens(std::int32_t count) {
    std::string bytes = shard_header(ShardVersion::four_bytes, count);
    for (std::int32_t i = 0; i < count; ++i) {
      const std::int32_t token = i * i % words;
      bytes.append(reinterpret_cast<const char*>(&token), sizeof token);
    }
    return bytes;
  }

  std::string model_ = fixtures + GetParam();
  std::string shard_ = folder_.make("data.bin", tokens(2000));
};

TEST_P(TrainsARelativeOfLlama, WithoutTrainingEveryFileStaysWhatItIs) {
  const std::string out = folder_.file("out");
  const ProgramResult run = well(run_train_gpt(of_model({"--steps", "0", "--export", out})));
  // Computed in the type that the files have.
  EXPECT_THAT(run.output, HasSubstr(GetParam() == "llama" ? " parameters, f32" : " parameters, bf16"));
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(model_)) {
    const std::string name = entry.path().filename().string();
    EXPECT_TRUE(contents_of(out + "/" + name) == contents_of(entry.path().string())) << name;
    ++files;
  }
  EXPECT_GE(files, 3U);
}

// From the checkpoint and the files that the training began with; without --data, and without a device.
TEST_P(TrainsARelativeOfLlama, ExportsFromACheckpointWithoutTheData) {
  well(run_train_gpt(of_model({"--sequence", "16", "--steps", "2", "--table-rows", "64", "--checkpoint",
                               folder_.file("run"), "--export", folder_.file("trained")})));
  const std::string output =
      well(run_train_gpt({"--init", model_, "--steps", "0", "--checkpoint", folder_.file("run"), "--resume",
                          "--export", folder_.file("copied")}))
          .output;
  EXPECT_EQ(output.find("rounded to bf16 (--export-type f32 keeps") != std::string::npos,
            GetParam() == "qwen3");
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_.file("trained"))) {
    const std::string name = entry.path().filename().string();
    EXPECT_TRUE(contents_of(folder_.file("copied/" + name)) == contents_of(entry.path().string())) << name;
    ++files;
  }
  EXPECT_GE(files, 2U);
}

// Tables in blocks, in the least memory: the export is that of the run in all of it. A resumed run keeps its
// blocks.
TEST_P(TrainsARelativeOfLlama, HasTheSameBitsInLessMemory) {
  const Words some = {"--sequence", "16", "--steps", "4", "--warmup", "0", "--machine", "rtx4090"};
  const auto with_more = [&](const Words& more) {
    Words all = of_model(some);
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const auto in_blocks = [&](Words more) {
    more.insert(more.end(), {"--table-rows", "64"});
    return with_more(more);
  };
  const ProgramResult whole = well(run_train_gpt(in_blocks({"--export", folder_.file("whole")})));
  const bool narrow = GetParam() == "qwen3";
  EXPECT_EQ(whole.output.find("rounded to bf16 (--export-type f32 keeps") != std::string::npos, narrow);
  well(run_train_gpt(
      in_blocks({"--steps", "2", "--schedule", "constant", "--checkpoint", folder_.file("run")})));
  const ProgramResult asked = well(run_train_gpt(in_blocks({"--plan-only"})));
  const std::size_t at = asked.output.find('(', asked.output.find("\nminimum"));
  ASSERT_NE(at, std::string::npos);
  const std::string minimum = asked.output.substr(at + 1, asked.output.find(' ', at) - at - 1);
  well(run_train_gpt(in_blocks({"--device-memory", minimum, "--export", folder_.file("least")})));
  for (const auto& entry : std::filesystem::directory_iterator(folder_.file("whole"))) {
    const std::string name = entry.path().filename().string();
    EXPECT_TRUE(contents_of(folder_.file("least/" + name)) == contents_of(entry.path().string())) << name;
  }
  // The question about the resumed run is about its blocks, too.
  const Words resumed = {"--checkpoint", folder_.file("run"), "--resume", "--plan-only"};
  EXPECT_THAT(well(run_train_gpt(with_more(resumed))).output, HasSubstr("(" + minimum + " bytes)"));
  expect_refusal(run_train_gpt({"--data", text_, "--table-rows", "64"}),
                 {"--table-rows: the tables of GPT-2 are whole"});
  const Words on = {"--schedule", "constant", "--checkpoint", folder_.file("run"), "--resume"};
  well(run_train_gpt(with_more(on)));
  Words other = on;
  other.insert(other.end(), {"--table-rows", "0"});
  expect_refusal(run_train_gpt(with_more(other)), {"model.table_rows"});
}

// Documents of eight tokens, one or two of them in a sample; the fifth token of each is no target.
std::string packed_documents(std::int64_t sequence) {
  std::vector<std::int32_t> tokens, begins;
  std::string counts;
  for (std::int32_t i = 0; i < 64 * 8; ++i) {
    tokens.push_back(i * i % 300);
    begins.push_back(static_cast<std::int32_t>(i % sequence) / 8 * 8);
    counts.push_back(i % 8 == 7 || i % 8 == 3 ? '\0' : '\1');
  }
  return test::packed_shard(sequence, tokens, begins, counts);
}

// The loss over targets alone, and no token sees another document: packed or not, it is the same. In f32 that
// holds with tables in blocks, too, also for the evaluation, which needs them whole.
TEST_P(TrainsARelativeOfLlama, HasTheLossOfEachDocumentAlone) {
  const std::string one = folder_.make("one.bin", packed_documents(8)),
                    two = folder_.make("two.bin", packed_documents(16));
  const auto on = [&](const std::string& data, const char* sequence, const char* batch, const Words& more) {
    Words words = {"--data",   data,  "--evaluation-data", data,        "--sequence",       sequence,
                   "--batch",  batch, "--device",          "simulated", "--init",           model_,
                   "--warmup", "0",   "--steps",           "2",         "--evaluate-every", "2"};
    words.insert(words.end(), more.begin(), more.end());
    return well(run_train_gpt(words)).output;
  };
  const std::string alone = on(one, "8", "64", {}),
                    packed =
                        on(two, "16", "32", GetParam() == "llama" ? Words{"--table-rows", "64"} : Words{});
  const auto line_with = [](const std::string& output, const char* word) {
    const std::size_t at = output.find(word);
    return output.substr(at, output.find(", ", at) - at);  // without the perplexity
  };
  EXPECT_THAT(alone, HasSubstr("over 384 tokens not trained on"));
  EXPECT_THAT(packed, HasSubstr("over 384 tokens not trained on"));
  EXPECT_EQ(line_with(packed, "evaluation    loss"), line_with(alone, "evaluation    loss"));
  const auto losses = [](const std::string& output) {
    std::string all;
    for (std::size_t at = output.find("  loss "); at != std::string::npos;
         at = output.find("  loss ", at + 1))
      all += output.substr(at, 13);
    return all;
  };
  EXPECT_EQ(losses(packed), losses(alone));  // all documents in each step
  const std::string none = folder_.make(
      "none.bin",
      test::packed_shard(8, {1, 2, 3, 4, 5, 6, 7, 8}, std::vector<std::int32_t>(8), std::string(8, '\0')));
  expect_refusal(run_train_gpt({"--data", one, "--evaluation-data", none, "--sequence", "8", "--init", model_,
                                "--device", "simulated", "--steps", "1", "--evaluate-every", "1"}),
                 {"--evaluation-data " + none, "have no target"});
  expect_refusal(run_train_gpt({"--data", two, "--sequence", "16", "--device", "simulated"}),
                 {"packed of several documents", "GPT-2"});
  expect_refusal(run_train_gpt({"--data", two, "--sequence", "8", "--init", model_, "--device", "simulated"}),
                 {"packed samples have 16 tokens"});
}

TEST_P(TrainsARelativeOfLlama, HasNoUseForBytes) {
  expect_refusal(run_train_gpt({"--data", text_, "--device", "simulated", "--init", model_}),
                 {"has tokens of its own", "token shards"});
}

INSTANTIATE_TEST_SUITE_P(Models, TrainsARelativeOfLlama, ::testing::Values("llama", "qwen3"),
                         [](const auto& info) { return info.param; });

// Streamed from the host, in the least memory.
TEST_F(TrainGptModelFiles, NorInTheLeastMemory) {
  const ProgramResult asked = run_train_gpt(with(
      {"--init", fixtures + "gpt2", "--sequence", "32", "--plan-only", "--export", folder_.file("out")}));
  EXPECT_FALSE(std::filesystem::exists(folder_.file("out")));
  const std::size_t at = asked.output.find('(', asked.output.find("\nminimum"));
  ASSERT_NE(at, std::string::npos);
  const std::string minimum = asked.output.substr(at + 1, asked.output.find(' ', at) - at - 1);
  run({"--init", fixtures + "gpt2_sharded/model.safetensors.index.json", "--device-memory", minimum,
       "--steps", "0", "--export", folder_.file("out")});
  for (const char* file : {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                           "model.safetensors.index.json"})
    EXPECT_TRUE(contents_of(folder_.file(std::string("out/") + file)) ==
                contents_of(fixtures + "gpt2_sharded/" + file))
        << file;
}

TEST_F(TrainGptModelFiles, TrainsOnFromWhatItWrote) {
  const Words sizes = {"--layers", "1",          "--width", "32",        "--heads",
                       "2",        "--sequence", "16",      "--dropout", "0"};
  Words first = {"--steps", "2", "--export", folder_.file("a")};
  first.insert(first.end(), sizes.begin(), sizes.end());
  run(first);
  run({"--init", folder_.file("a"), "--sequence", "8", "--steps", "1", "--export", folder_.file("b")});
  const ModelDescription model = read_model_description(folder_.file("b"));
  EXPECT_EQ(model.config.sequence, 16);
  EXPECT_EQ(model.config.layers, 1);
  EXPECT_EQ(model.config.dropout, 0);
  EXPECT_NE(contents_of(folder_.file("a/model.safetensors")),
            contents_of(folder_.file("b/model.safetensors")));
  EXPECT_THAT(run_train_gpt(with({"--init", folder_.file("b"), "--steps", "0", "--sample", "3"})).output,
              HasSubstr("3 bytes from the model"));
}

// Tuned on samples of 8, a model of 32 positions keeps the others, and may be read by whoever needs them.
TEST_F(TrainGptModelFiles, PositionsThatAreNotTrainedStay) {
  const std::string out = folder_.file("out");
  const ProgramResult result =
      well(run_train_gpt(with({"--init", fixtures + "gpt2", "--sequence", "8", "--steps", "1",
                               "--learning-rate", "0.1", "--export", out})));
  EXPECT_THAT(result.output,
              HasSubstr("32 positions, of which those behind --sequence 8 are as they were read"));
  EXPECT_EQ(read_model_description(out).config.sequence, 32);
  const auto row = [](const TensorFiles& files, int index) {
    const StoredTensor* table = files.find("transformer.wpe.weight");
    const Bytes bytes = table->bytes / static_cast<Bytes>(table->shape[0]);
    std::vector<std::byte> values(bytes);
    files.read(*table, static_cast<Bytes>(index) * bytes, values);
    return values;
  };
  const TensorFiles before(fixtures + "gpt2"), after(out);
  for (int i = 0; i < 32; ++i) EXPECT_EQ(row(before, i) == row(after, i), i >= 8) << i;
  run({"--init", out, "--sequence", "32", "--steps", "1"});
}

TEST_F(TrainGptModelFiles, RefusesFlagsThatContradictTheFile) {
  const std::string init = fixtures + "gpt2";
  expect_refused({"--init", init, "--layers", "3"}, {"--layers 3", "--init " + init, "n_layer 2"});
  expect_refused({"--init", init, "--width", "16"}, {"--width 16", "n_embd 8"});
  expect_refused({"--init", init, "--heads", "4"}, {"--heads 4", "n_head 2"});
  expect_refused({"--init", init, "--sequence", "33"}, {"--sequence 33", "n_positions 32"});
  run({"--init", init, "--layers", "2", "--width", "8", "--heads", "2", "--sequence", "9", "--plan-only"});
}

TEST_F(TrainGptModelFiles, RefusesFilesThatAreNoGpt) {
  expect_refused({"--init", folder_.file("none")}, {"--init", "config.json"});
  expect_refused({"--init", fixtures + "bert"}, {"--init", "bert"});
  std::filesystem::copy(fixtures + "gpt2", folder_.file("cut"));
  std::filesystem::resize_file(folder_.file("cut/model.safetensors"), 5000);
  expect_refused({"--init", folder_.file("cut")}, {"--init", "model.safetensors"});
}

TEST_F(TrainGptModelFiles, RefusesAPlaceThatIsTaken) {
  expect_refused({"--steps", "0", "--export", folder_.file("")}, {"--export", "there are files in it"});
  expect_refused({"--steps", "0", "--export", folder_.file("out"), "--log", folder_.file("out/log")},
                 {"--log", "in the folder of --export"});
}

}  // namespace
}  // namespace stowage::samples
