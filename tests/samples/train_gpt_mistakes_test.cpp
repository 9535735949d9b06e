// train_gpt, as it is called by mistake: nothing is lost, and the message says what to do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <limits>
#include <thread>

#include "src/base/output_file.h"
#include "stowage/checkpoint.h"
#include "stowage/token_shards.h"
#include "stowage/tokenizer.h"
#include "tests/samples/machine_json.h"
#include "tests/samples/run_program.h"
#include "tests/support/temporary_folder.h"

namespace stowage::samples {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Words = std::vector<std::string>;

class TrainGptMistakes : public ::testing::Test {
 protected:
  ProgramResult run(const Words& more) const {
    Words words = {"--data",  text_, "--device", "simulated", "--machine",        machine_,
                   "--steps", "6",   "--policy", "none",      "--link-bandwidth", "unthrottled",
                   "--batch", "4",   "--warmup", "2"};
    words.insert(words.end(), more.begin(), more.end());
    return run_train_gpt(words);
  }
  static Words sized(const Words& more) {
    Words words = {"--layers", "1", "--width", "16", "--heads", "2", "--sequence", "8"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  ProgramResult run_well(const Words& more) const { return well(run(sized(more))); }
  void expect_refused(const Words& more, const Words& parts) const {
    EXPECT_THAT(expect_refusal(run(sized(more)), parts), Not(HasSubstr("json.exception")));
  }
  // `more` would write to `path`, which is read.
  void expect_kept(const std::string& path, const std::string& reader, const Words& more) const {
    const std::string before = contents_of(path);
    for (const char* flag : {"--log", "--weights"}) {
      Words words = more;
      words.insert(words.end(), {flag, path});
      expect_refusal(run(words), {flag + (" " + path) + ": that is", reader});
    }
    EXPECT_EQ(contents_of(path), before);
  }
  void make_tokenizer() const {
    const BytePairVocabulary learned = train_byte_pairs(contents_of(text_), 300);
    folder_.make("vocab.json", to_vocab_json(learned));
    folder_.make("merges.txt", to_merges_text(learned));
  }

  TemporaryFolder folder_;
  std::string text_ = folder_.make("text", std::string(500, 'a') + std::string(500, 'b'));
  std::string machine_ = folder_.make("machine.json", machine_json({DataType::f32}));
};

// 103 billion parameters, whose state alone is over a TB.
TEST_F(TrainGptMistakes, APlanForMoreMemoryThanTheHostHasIsRefusedBeforeItIsAllocated) {
  const Words more = {"--layers", "2",          "--width", "65536",    "--heads",
                      "64",       "--sequence", "8",       "--policy", "zero-offload"};
  expect_refusal(run(more), {"host memory: ", " needed, ", " left of ", "for the plan's buckets",
                             "for the simulated device's own memory", "To go on, "});
  Words planned = more;
  planned.emplace_back("--plan-only");
  well(run(planned));
}

TEST_F(TrainGptMistakes, NothingThatIsReadIsOverwritten) {
  make_tokenizer();
  const std::string merges = folder_.file("merges.txt");
  expect_kept(merges, "--tokenizer", sized({"--tokenizer", folder_.file("")}));
  expect_kept(merges, "--tokenizer", sized({"--tokenizer", folder_.file("vocab.json")}));
  expect_kept(machine_, "--machine", sized({}));
  run_well({"--export", folder_.file("model"), "--checkpoint", folder_.file("saved")});
  expect_kept(folder_.file("model/model.safetensors"), "--init", {"--init", folder_.file("model")});
  expect_kept(folder_.file("model/config.json"), "--init",
              {"--init", folder_.file("model/model.safetensors")});
  const auto saved = list_checkpoints(folder_.file("saved"));
  ASSERT_FALSE(saved.empty());
  const std::string& checkpoint = saved.front().path;
  expect_kept(checkpoint + "/tensors.bin", "--resume", sized({"--resume", checkpoint}));
  expect_kept(checkpoint + "/state.json", "--checkpoint",
              sized({"--checkpoint", folder_.file("saved"), "--resume"}));
  // Beside them there is room.
  run_well({"--tokenizer", folder_.file(""), "--log", folder_.file("log.json")});
}

TEST_F(TrainGptMistakes, ALogThatAnotherRunHoldsIsRefused) {
  const std::string log = folder_.make("log", "of another run\n");
  OutputFile other("--log", log, Writing::growing);
  expect_refused({"--log", log}, {"--log " + log + ": another run holds this file"});
  EXPECT_EQ(contents_of(log), "of another run\n");
  other.commit();
  run_well({"--log", log});
}

// Of runs that find no file each trains, or ends before its first step.
TEST_F(TrainGptMistakes, ANewLogHasOneRunAtATime) {
  const std::string log = folder_.file("log");
  std::vector<ProgramResult> results(6);
  std::vector<std::thread> runs;
  for (ProgramResult& result : results)
    runs.emplace_back([&] { result = run(sized({"--log", log, "--threads", "1"})); });
  for (std::thread& each : runs) each.join();
  int well = 0;
  for (const ProgramResult& result : results) {
    if (result.exit_code == 0) ++well;
    if (result.exit_code != 0) expect_refusal(result, {"another run holds this file"});
  }
  EXPECT_GT(well, 0);
  const std::string lines = contents_of(log);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 6);
}

TEST_F(TrainGptMistakes, NorIsAShard) {
  std::filesystem::create_directory(folder_.file("shards"));
  const std::string shard = folder_.file("shards/a.bin");
  TokenShardWriter writer(shard, ShardVersion::two_bytes);
  writer.append(std::vector<std::int32_t>(100, 7));
  writer.commit();
  for (const char* place : {"shards", "shards/*.bin", "shards/a.bin"}) {
    Words words = sized({"--data", folder_.file(place)});
    expect_kept(shard, "--data", words);
  }
}

TEST_F(TrainGptMistakes, APlaceThatCannotBeExportedToIsToldBeforeTheWork) {
  std::filesystem::create_directory(folder_.file("empty"));
  const ProgramResult result = run(sized({"--export", folder_.file("empty/.")}));
  expect_refusal(result, {"--export " + folder_.file("empty/."), "name a new folder"});
  EXPECT_EQ(result.output, "");
  EXPECT_TRUE(std::filesystem::is_empty(folder_.file("empty")));
}

TEST_F(TrainGptMistakes, ARunThatCannotBeginLeavesNoFolder) {
  const std::string dir = folder_.file("saved");
  expect_refused({"--checkpoint", dir, "--device-memory", "1"}, {"--device-memory 1"});
  EXPECT_FALSE(std::filesystem::exists(dir));
  std::filesystem::create_directory(dir);
  expect_refused({"--checkpoint", dir, "--device-memory", "1"}, {"--device-memory 1"});
  EXPECT_TRUE(std::filesystem::exists(dir));
}

TEST_F(TrainGptMistakes, AFlagThatWouldDoNothingIsRefused) {
  expect_refused({"--keep-tokens", "0.5"}, {"gpt: keep_tokens is 0.5", "the loss would know the future"});
  expect_refused({"--checkpoint-every", "5"}, {"--checkpoint-every: ", "without --checkpoint;"});
  expect_refused({"--keep", "2"}, {"--keep: ", "without --checkpoint;"});
  expect_refused({"--temperature", "1"}, {"--temperature: ", "without --generate;"});
  expect_refused({"--evaluation-data", text_}, {"--evaluation-data: ", "--evaluate-every N"});
  run_well({"--evaluation-data", text_, "--evaluate-every", "0"});
  expect_refused({"--generate", "x", "--checkpoint", "c", "--report", "r"}, {"--report: --generate trains"});
}

TEST_F(TrainGptMistakes, AFlagThatIsNoneIsNamed) {
  expect_refused({"--step", "2"}, {"--step: there is no such flag, write --steps in full"});
  expect_refused({"--frobnicate", "2"}, {"--frobnicate: there is no such flag; train_gpt --help"});
  expect_refused({"extra"}, {"extra: there is no such argument; train_gpt --help"});
}

// No other process is there: each of these would be waited out otherwise.
TEST_F(TrainGptMistakes, ALaunchThatMakesNoGroupIsKnownAtOnce) {
  const auto refused = [&](Words words, const Words& flags, const Words& parts) {
    words.insert(words.begin(), {"RANK=1", "MASTER_PORT=29500"});
    words.insert(words.end(), {STOWAGE_TRAIN_GPT, "--data", text_, "--device", "cuda"});
    words.insert(words.end(), flags.begin(), flags.end());
    expect_refusal(run_program("/usr/bin/env", words), parts);
  };
  refused({"WORLD_SIZE=3", "MASTER_ADDR=localhost"}, {},
          {"a launch of 3 processes: that is no power of two"});
  refused({"WORLD_SIZE=2", "MASTER_ADDR=localhost"}, {"--devices", "4"}, {"--devices 4 with 2 processes"});
  refused({"WORLD_SIZE=2"}, {}, {"RANK=1 of WORLD_SIZE=2", "without MASTER_ADDR and MASTER_PORT"});
  refused({"WORLD_SIZE=2", "MASTER_ADDR=no-such-machine.invalid"}, {},
          {"no-such-machine.invalid is the name of no machine"});
}

TEST_F(TrainGptMistakes, WhatDoesNotFitThisMachineIsRefused) {
  expect_refused({"--width", "1048576"},
                 {"host memory: ", "for the simulated device's own memory", "choose a smaller model"});
  expect_refused({"--width", "16777216"}, {"--width: Value 16777216 not in range 1 to 1048576"});
  expect_refused({"--layers", "1025"}, {"--layers: Value 1025 not in range 1 to 1024"});
}

TEST_F(TrainGptMistakes, WhatIsHeldOutTooLittleHasAWayOut) {
  expect_refused({"--evaluate-every", "2", "--evaluation-share", "0.001"},
                 {"--evaluation-share 0.001: what is held out of --data " + text_, "hold out more"});
}

TEST_F(TrainGptMistakes, AModelThatIsNotOneIsRefusedByItsName) {
  const std::string model = folder_.file("model");
  run_well({"--export", model});
  well(run({"--init", model + "/config.json", "--steps", "1"}));
  std::string config = contents_of(model + "/config.json");
  const std::string layers = "\"n_layer\": 1";
  config.replace(config.find(layers), layers.size(), "\"n_layer\": 1000000000");
  folder_.make("model/config.json", config);
  expect_refusal(run({"--init", model}),
                 {"--init " + model, "config.json: 'n_layer' is 1000000000; 1 to 1024 is supported"});
  config.replace(config.find("1000000000"), 10, "1024");
  folder_.make("model/config.json", config);
  // Told by the files' headers, before a graph of so many layers is built.
  for (const Words& words : {Words{"--init", model}, Words{"--init", model, "--generate", "x"}})
    expect_refusal(run(words), {"--init " + model + ": model files: there is no tensor ",
                                ".h.1.mlp.c_fc.weight\", and config.json asks for 1024 layers"});
}

TEST_F(TrainGptMistakes, AModelOfNoNumbersIsRefused) {
  const std::string model = folder_.file("model");
  run_well({"--export", model});
  std::string tensors = contents_of(model + "/model.safetensors");
  const float none = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(tensors.data() + tensors.size() - sizeof none, &none, sizeof none);
  folder_.make("model/model.safetensors", tensors);
  for (const Words& words : {Words{"--init", model}, Words{"--init", model, "--generate", "x"}})
    expect_refusal(run(words),
                   {"--init " + model + ": model files: tensor \"transformer.wte.weight\" holds NaN",
                    "at element 4095"});
}

TEST_F(TrainGptMistakes, AnotherModelsTokenizerIsToldOf) {
  make_tokenizer();
  run_well({"--tokenizer", folder_.file(""), "--export", folder_.file("model")});
  const std::string words = folder_.make("vocab.txt", "[UNK]\na\nb\n");
  std::string text;
  for (int i = 0; i < 100; ++i) text += "a b ";
  const ProgramResult result = well(
      run({"--init", folder_.file("model"), "--tokenizer", words, "--data", folder_.make("words", text)}));
  EXPECT_THAT(result.errors, HasSubstr("/model has a vocabulary of "));
  EXPECT_THAT(result.errors, HasSubstr("3 tokens: is it the model's own?"));
}

// A line's end is none of its tokens.
TEST_F(TrainGptMistakes, SamplesFromAVocabularyOfWords) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "one two three\n";
  const std::string words =
      folder_.make("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\none\ntwo\nthree\n");
  const ProgramResult result =
      run_well({"--data", folder_.make("words", text), "--tokenizer", words, "--sample", "5"});
  EXPECT_THAT(result.output, HasSubstr("5 tokens from the model"));
}

TEST_F(TrainGptMistakes, AFileThatCannotBeWrittenCostsNeitherTheTrainingNorTheOthers) {
  const std::string weights = folder_.file("weights"), whole = folder_.file("whole");
  run_well({"--weights", whole});
  const ProgramResult result = run(sized(
      {"--log", "/dev/full", "--report", "/dev/full", "--weights", weights, "--trace", folder_.file("t")}));
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.errors, HasSubstr("train_gpt: --log /dev/full: writing failed"));
  EXPECT_THAT(result.errors, HasSubstr("train_gpt: --report /dev/full: writing failed"));
  EXPECT_EQ(std::count(result.errors.begin(), result.errors.end(), '\n'), 2) << result.errors;
  EXPECT_EQ(contents_of(weights), contents_of(whole));
  EXPECT_TRUE(std::filesystem::exists(folder_.file("t")));
}

// The page tells of the steps that were made, of what ended them, and of those before.
TEST_F(TrainGptMistakes, ADivergedRunLeavesItsPageAndItsLog) {
  const std::string page = folder_.file("page"), log = folder_.file("log"), dir = folder_.file("saved");
  run_well({"--checkpoint", dir, "--log", log, "--steps", "3"});
  const ProgramResult result =
      run(sized({"--checkpoint", dir, "--resume", "--log", log, "--report", page, "--steps", "40",
                 "--schedule", "constant", "--learning-rate", "1e6", "--weights", folder_.file("weights"),
                 "--export", folder_.file("model")}));
  EXPECT_EQ(result.exit_code, 1) << result.errors;
  const std::string html = contents_of(page);
  EXPECT_THAT(html, HasSubstr("<p class=\"failure\"><b>failed</b> step "));
  EXPECT_THAT(html, HasSubstr("made it of finite values"));
  EXPECT_THAT(html, HasSubstr("steps before"));
  EXPECT_THAT(html, HasSubstr("3 shown, from --log"));
  EXPECT_TRUE(html.ends_with("</html>\n"));
  const std::string lines = contents_of(log);
  EXPECT_GT(std::count(lines.begin(), lines.end(), '\n'), 3);
  EXPECT_FALSE(std::filesystem::exists(folder_.file("weights")));
  EXPECT_FALSE(std::filesystem::exists(folder_.file("model")));
}

}  // namespace
}  // namespace stowage::samples
