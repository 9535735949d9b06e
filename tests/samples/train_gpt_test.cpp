// train_gpt from end to end: its exit codes, its messages, and the same numbers in any memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "stowage/plan.h"
#include "tests/samples/machine_json.h"
#include "tests/samples/run_program.h"
#include "tests/support/draws.h"
#include "tests/support/temporary_folder.h"

namespace stowage::samples {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using Words = std::vector<std::string>;

std::string some_text() {
  std::string text;
  for (int i = 0; i < 400; ++i) text += "line " + std::to_string(i * i % 97) + " of the text\n";
  return text;
}

class TrainGpt : public ::testing::Test {
 protected:
  Words small(const Words& more) const {
    Words words = {"--data", text_,     "--device", "simulated",  "--layers", "2",       "--width",
                   "64",     "--heads", "2",        "--sequence", "32",       "--batch", "2"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  // Exit code 2, no table on stdout, and one line on stderr with all of `parts`.
  static std::string expect_refused(const Words& words, const Words& parts) {
    const ProgramResult result = run_train_gpt(words);
    EXPECT_EQ(result.exit_code, 2) << result.errors;
    EXPECT_THAT(result.output, ::testing::Not(HasSubstr("\nneed ")));
    EXPECT_THAT(result.errors, ::testing::StartsWith("train_gpt: "));
    EXPECT_EQ(std::count(result.errors.begin(), result.errors.end(), '\n'), 1) << result.errors;
    EXPECT_EQ(result.errors.empty() ? ' ' : result.errors.back(), '\n');
    for (const std::string& part : parts) EXPECT_THAT(result.errors, HasSubstr(part));
    return result.errors;
  }

  TemporaryFolder folder_;
  std::string text_ = folder_.make("text", some_text());
};

std::vector<json> log_lines(const std::string& path) {
  std::vector<json> result;
  std::istringstream lines(contents_of(path));
  for (std::string line; std::getline(lines, line);) result.push_back(json::parse(line));
  return result;
}

// The text of a column, as written.
Words column(const std::string& path, const std::string& name) {
  Words result;
  std::istringstream lines(contents_of(path));
  for (std::string line; std::getline(lines, line);) {
    const std::string key = '"' + name + "\": ";
    const std::size_t begin = line.find(key) + key.size();
    result.push_back(line.substr(begin, line.find_first_of(",}", begin) - begin));
  }
  return result;
}

TEST_F(TrainGpt, RefusesBadText) {
  expect_refused({"--data", folder_.file("nothing")}, {folder_.file("nothing"), "no such file"});
  expect_refused({"--data", folder_.make("empty", "")}, {"empty"});
  expect_refused({"--data", folder_.file("")}, {"--data", "no token shard is there"});
  // One byte short of a sequence and the byte after it.
  expect_refused({"--data", folder_.make("short", std::string(256, 'x')), "--plan-only"},
                 {"short", "256 bytes", "--sequence"});
  expect_refused({}, {"--data"});
}

TEST_F(TrainGpt, RefusesBadFlags) {
  expect_refused(small({"--width", "65"}), {"--width 65", "--heads 2"});
  expect_refused(small({"--layers", "many"}), {"--layers", "many"});
  expect_refused(small({"--device-memory", "lots"}), {"--device-memory", "lots"});
  expect_refused(small({"--device", "cuda:99"}), {"--device: ", "cuda:99"});
  expect_refused(small({"--device", "tpu"}), {"--device: ", "tpu"});
  expect_refused(small({"--machine", folder_.file("nothing")}), {folder_.file("nothing")});
  expect_refused(small({"--nonsense"}), {"--nonsense"});
}

TEST_F(TrainGpt, PlansInBf16ForAMachineThatIsNotHere) {
  const std::string path = folder_.make("machine.json", machine_json({DataType::bf16}));
  const ProgramResult result = run_train_gpt(small({"--machine", path, "--type", "bf16", "--plan-only"}));
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_THAT(result.output, HasSubstr("500000 GFLOP/s in matrices"));
  EXPECT_THAT(result.output, HasSubstr("1.00 MiB (1048576 bytes) for context and libraries"));
  EXPECT_THAT(result.output,
              HasSubstr("a card on elsewhere, measured 2026-01-01T00:00:00Z; this run is not"));
  expect_refused(small({"--machine", path, "--plan-only"}), {"f32", "bf16"});
}

TEST_F(TrainGpt, PlansForAMachineByItsName) {
  const ProgramResult result = run_train_gpt(small({"--machine", "rtx4090", "--plan-only"}));
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_THAT(result.output, HasSubstr("NVIDIA GeForce RTX 4090 on its usual host"));
  EXPECT_THAT(result.output, HasSubstr("this run is not on that machine"));
  EXPECT_THAT(run_train_gpt(small({"--plan-only"})).output, Not(HasSubstr("not on that machine")));
  expect_refused(small({"--machine", "no-such-card"}), {"--machine", "no-such-card", "rtx4090"});
}

// As `stowage plan` has them: what can be given to --device-memory.
TEST_F(TrainGpt, TheMinimumThatItPrintsHasTheOverheadInIt) {
  const std::string path = folder_.make("machine.json", machine_json({DataType::f32}));
  const Words plan = small({"--machine", path, "--plan-only"});
  const std::string table = run_train_gpt(plan).output;
  const std::size_t line = table.find("\nminimum");
  ASSERT_NE(line, std::string::npos);
  const std::size_t begin = table.find('(', line) + 1;
  const Bytes minimum = std::stoull(table.substr(begin));
  EXPECT_GT(minimum, 1_MiB);
  Words words = plan;
  words.insert(words.end(), {"--device-memory", std::to_string(minimum)});
  EXPECT_EQ(run_train_gpt(words).exit_code, 0);
  words.back() = std::to_string(minimum - 1);
  expect_refused(words, {"--device-memory", std::to_string(minimum)});
}

TEST_F(TrainGpt, RefusesUnwritableOutputsBeforeTheTraining) {
  for (const char* flag : {"--log", "--trace", "--report", "--weights", "--plan-json"}) {
    expect_refused(small({flag, folder_.file("no/such/folder")}), {flag, "no/such/folder"});
    expect_refused(small({flag, text_}), {flag, text_, "--data"});
  }
  expect_refused(small({"--log", folder_.file("same"), "--trace", folder_.file("same")}),
                 {"--trace", "--log"});
  EXPECT_EQ(contents_of(text_), some_text());
  EXPECT_EQ(folder_.entries(), 1U);
}

TEST_F(TrainGpt, HelpExitsWithZero) {
  const ProgramResult result = run_train_gpt({"--help"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.output, HasSubstr("--device-memory"));
  EXPECT_EQ(result.errors, "");
}

// The number before " bytes" in the message.
Bytes smallest_in(const std::string& message) {
  const std::size_t end = message.find(" bytes (");
  const std::size_t begin = message.rfind(' ', end - 1) + 1;
  return std::stoull(message.substr(begin, end - begin));
}

TEST_F(TrainGpt, OneByteUnderTheMinimumSaysWhatWorks) {
  const std::string first =
      expect_refused(small({"--device-memory", "1000"}), {"--device-memory 1000", " op "});
  const Bytes minimum = smallest_in(first);
  const std::string flag = std::to_string(minimum);
  const std::string again =
      expect_refused(small({"--device-memory", std::to_string(minimum - 1)}),
                     {"--device-memory " + std::to_string(minimum - 1), "--device-memory " + flag});
  EXPECT_EQ(smallest_in(again), minimum);
  const ProgramResult works = run_train_gpt(small({"--device-memory", flag, "--steps", "2"}));
  EXPECT_EQ(works.exit_code, 0) << works.errors;
}

// In half the memory, over a link so slow that activations are rebuilt rather than moved.
TEST_F(TrainGpt, VerifyComparesReplaysAndChangesNoNumber) {
  Words words = {"--width", "16", "--link-bandwidth", "1MB/s", "--steps", "2", "--device-memory"};
  const std::string refusal =
      expect_refused(small({"--width", "16", "--policy", "none", "--device-memory", "1000"}), {});
  words.push_back(std::to_string(smallest_in(refusal) / 2));
  Words plain = words, verified = words;
  plain.insert(plain.end(), {"--log", folder_.file("plain")});
  verified.insert(verified.end(), {"--log", folder_.file("verified"), "--verify"});
  const ProgramResult before = run_train_gpt(small(plain));
  const ProgramResult after = run_train_gpt(small(verified));
  EXPECT_EQ(before.exit_code, 0) << before.errors;
  EXPECT_EQ(after.exit_code, 0) << after.errors;
  EXPECT_THAT(before.output, ::testing::Not(HasSubstr("verified")));
  EXPECT_THAT(after.output, ::testing::ContainsRegex("verified +[1-9][0-9,]* replays"));
  for (const char* name : {"loss", "grad_norm"})
    EXPECT_EQ(column(folder_.file("plain"), name), column(folder_.file("verified"), name));
}

TEST_F(TrainGpt, HostMemoryTooSmallSaysWhatWorks) {
  Words words = small({"--steps", "2", "--host-memory", "1000", "--device-memory"});
  words.push_back(std::to_string(smallest_in(expect_refused(small({"--device-memory", "1000"}), {}))));
  const std::string message = expect_refused(words, {"--host-memory 1000", "the smallest that works"});
  EXPECT_THAT(message, ::testing::Not(HasSubstr(" op ")));  // of the device
  *(std::find(words.begin(), words.end(), "--host-memory") + 1) = std::to_string(smallest_in(message));
  const ProgramResult works = run_train_gpt(words);
  EXPECT_EQ(works.exit_code, 0) << works.errors;
}

TEST_F(TrainGpt, PlanOnlyTrainsNothing) {
  const ProgramResult result = run_train_gpt(
      small({"--plan-only", "--plan-json", folder_.file("plan"), "--log", folder_.file("log")}));
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_THAT(result.output, HasSubstr("lower bound"));
  EXPECT_THAT(result.output, ::testing::Not(HasSubstr("loss")));
  EXPECT_FALSE(std::filesystem::exists(folder_.file("log")));
  EXPECT_FALSE(plan_from_json(contents_of(folder_.file("plan"))).instructions.empty());
}

TEST_F(TrainGpt, SameNumbersInAnyMemoryAndWithAnyThreads) {
  const Bytes minimum =
      smallest_in(expect_refused(small({"--dropout", "0.1", "--device-memory", "1000"}), {}));
  struct Variant {
    std::string memory;
    std::string threads;
    Words more;
  };
  const std::vector<Variant> variants = {
      {"unlimited", "1", {}},
      {"unlimited", "2", {"--policy", "none"}},
      {"unlimited", "1", {"--policy", "zero-offload"}},
      {"unlimited", "2", {"--policy", "zero-infinity"}},
      {"unlimited", "1", {"--policy", "gemini-cpu"}},
      {"unlimited", "2", {"--policy", "layer-stream"}},
      {"unlimited", "1", {"--policy", "checkpoint"}},
      {std::to_string(minimum), "1", {"--link-bandwidth", "unthrottled"}},
      {std::to_string(minimum), "2", {"--link-bandwidth", "1GB/s"}},
      {std::to_string(minimum + minimum / 5), "2", {}},
      {std::to_string(minimum * 2), "1", {"--bucket-size", "10000"}},
      {std::to_string(minimum * 2), "2", {}},
  };
  Words losses;
  Words norms;
  std::string weights;
  for (const Variant& variant : variants) {
    SCOPED_TRACE(variant.memory + " bytes, " + variant.threads + " threads");
    const std::string log = folder_.file("log");
    Words words =
        small({"--dropout", "0.1", "--steps", "20", "--log", log, "--weights", folder_.file("weights"),
               "--device-memory", variant.memory, "--threads", variant.threads});
    words.insert(words.end(), variant.more.begin(), variant.more.end());
    const ProgramResult result = run_train_gpt(words);
    ASSERT_EQ(result.exit_code, 0) << result.errors;
    ASSERT_EQ(log_lines(log).size(), 20U);
    if (losses.empty()) {
      losses = column(log, "loss");
      norms = column(log, "grad_norm");
      weights = contents_of(folder_.file("weights"));
    }
    EXPECT_EQ(column(log, "loss"), losses);
    EXPECT_EQ(column(log, "grad_norm"), norms);
    EXPECT_EQ(contents_of(folder_.file("weights")), weights);
  }
  EXPECT_GT(weights.size(), 2U * 12 * 64 * 64 * 4);
  EXPECT_LT(std::stod(losses.back()), std::stod(losses.front()));
}

// The same batch, and with it the same masks, in parts: what f32 rounds apart grows with Adam's steps.
TEST_F(TrainGpt, MicroBatchesLearnTheSameAndTheSameInAnyMemory) {
  const std::string layers = testing::fewer_draws ? "1" : "2";
  const auto losses = [&](const std::string& parts, const Words& more) {
    const std::string log = folder_.file("log");
    Words words = small({"--layers", layers, "--batch", "4", "--micro-batches", parts, "--dropout", "0.1",
                         "--steps", "4", "--log", log});
    words.insert(words.end(), more.begin(), more.end());
    const ProgramResult result = run_train_gpt(words);
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    EXPECT_EQ(result.output.find(parts + " micro-batches, ") != std::string::npos, parts != "1");
    return column(log, "loss");
  };
  const Words whole = losses("1", {});
  const Words split = losses("4", {});
  ASSERT_EQ(split.size(), 4U);
  for (std::size_t step = 0; step < 4; ++step)
    EXPECT_NEAR(std::stod(split[step]), std::stod(whole[step]), 1e-4 * std::stod(whole[step]));
  const Bytes minimum =
      smallest_in(expect_refused(small({"--layers", layers, "--batch", "4", "--micro-batches", "4",
                                        "--dropout", "0.1", "--device-memory", "1000"}),
                                 {}));
  EXPECT_EQ(losses("4", {"--device-memory", std::to_string(minimum)}), split);
}

TEST_F(TrainGpt, MeasuredBytesAreThePlannedOnes) {
  const Bytes minimum = smallest_in(expect_refused(small({"--device-memory", "1000"}), {}));
  for (const Bytes memory : {minimum, minimum + minimum / 5, minimum * 2}) {
    SCOPED_TRACE(memory);
    const ProgramResult result =
        run_train_gpt(small({"--steps", "4", "--device-memory", std::to_string(memory), "--log",
                             folder_.file("log"), "--plan-json", folder_.file("plan")}));
    ASSERT_EQ(result.exit_code, 0) << result.errors;
    const Plan plan = plan_from_json(contents_of(folder_.file("plan")));
    EXPECT_LE(plan.device_peak_bytes, memory);
    const std::vector<json> lines = log_lines(folder_.file("log"));
    ASSERT_EQ(lines.size(), 4U);
    EXPECT_EQ(lines.back().at("device_peak_bytes"), plan.device_peak_bytes);
    EXPECT_EQ(lines.back().at("h2d_bytes"), plan.h2d_bytes);
    EXPECT_EQ(lines.back().at("d2h_bytes"), plan.d2h_bytes);
  }
}

TEST_F(TrainGpt, LogHasItsKeysAndTheSchedule) {
  ASSERT_EQ(run_train_gpt(small({"--steps", "3", "--warmup", "1", "--learning-rate", "0.5", "--log",
                                 folder_.file("log")}))
                .exit_code,
            0);
  const std::vector<json> lines = log_lines(folder_.file("log"));
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[2].at("step"), 3);
  EXPECT_EQ(lines[0].at("learning_rate"), 0.25);
  EXPECT_EQ(lines[1].at("learning_rate"), 0.5);
  EXPECT_EQ(lines[2].at("learning_rate"), 0.05);
  for (const json& line : lines) {
    EXPECT_EQ(line.size(), 13U);
    for (const char* key :
         {"loss", "grad_norm", "tokens_per_second", "device_peak_bytes", "h2d_bytes", "d2h_bytes",
          "unpinned_bytes", "stall_fraction", "between_seconds", "clip_scale", "speculated_updates"}) {
      EXPECT_TRUE(line.at(key).is_number()) << key;
    }
  }
}

// On the host lane, beside backward.
TEST_F(TrainGpt, TraceHasUpdatesThatBeginBeforeTheGate) {
  MachineFile slow_host = machine_from_json(machine_json({DataType::f32}));
  slow_host.host_rates = {{1, 1e9}};
  const std::string machine = folder_.make("machine.json", to_json(slow_host));
  well(run_train_gpt(small({"--machine", machine, "--device-memory", "1500KiB", "--steps", "3", "--trace",
                            folder_.file("trace"), "--speculate", "always"})));
  const json trace = json::parse(contents_of(folder_.file("trace")));
  for (const int process : {1, 2}) {  // planned, measured
    std::vector<json> early;
    double gate = 0, first_backward = 0;
    for (const json& event : trace.at("traceEvents")) {
      if (event.at("ph") != "X" || event.at("pid") != process) continue;
      if (event.at("cat") == "speculate") early.push_back(event);
      if (event.at("cat") == "gate") gate = event.at("ts");
      if (first_backward == 0 && event.at("args").value("phase", "") == "backward")
        first_backward = event.at("ts");
    }
    EXPECT_FALSE(early.empty());
    for (const json& event : early) {
      EXPECT_EQ(event.at("tid"), static_cast<int>(LaneRole::host) + 1);
      EXPECT_GT(event.at("ts"), first_backward);
      EXPECT_LT(event.at("ts"), gate);
    }
  }
}

TEST_F(TrainGpt, TraceHasBothSteps) {
  ASSERT_EQ(run_train_gpt(small({"--steps", "3", "--trace", folder_.file("trace"), "--plan-json",
                                 folder_.file("plan")}))
                .exit_code,
            0);
  const std::size_t instructions = plan_from_json(contents_of(folder_.file("plan"))).instructions.size();
  std::map<int, std::size_t> events;
  const json trace = json::parse(contents_of(folder_.file("trace")));
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") == "X") ++events[event.at("pid").get<int>()];
  }
  EXPECT_EQ(events, (std::map<int, std::size_t>{{1, instructions}, {2, instructions}}));
}

TEST_F(TrainGpt, ReportHasEveryStepAndThePlan) {
  ASSERT_EQ(
      run_train_gpt(small({"--steps", "3", "--report", folder_.file("page"), "--log", folder_.file("log")}))
          .exit_code,
      0);
  const std::string page = contents_of(folder_.file("page"));
  const std::string begin = "id=\"plan-data\">";
  const std::size_t at = page.find(begin) + begin.size();
  const json data = json::parse(page.substr(at, page.find("</script>", at) - at));
  const json& losses = data.at("run").at(0).at("lines").at(0).at("columns");
  ASSERT_EQ(losses.size(), 15U);
  std::istringstream lines(contents_of(folder_.file("log")));
  std::string line;
  for (std::size_t step = 0; std::getline(lines, line); ++step) {
    EXPECT_EQ(losses.at(5 * step), step + 1);
    EXPECT_EQ(losses.at(5 * step + 3), json::parse(line).at("loss"));
  }
  EXPECT_FALSE(data.at("instructions").empty());
}

TEST_F(TrainGpt, GeneratesTheSameTextFromTheSameSeed) {
  const auto sample = [&](const std::string& seed) {
    const ProgramResult result = run_train_gpt(small({"--steps", "2", "--sample", "60", "--seed", seed}));
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    const std::size_t begin = result.output.find("temperature");
    EXPECT_NE(begin, std::string::npos);
    return result.output.substr(begin);
  };
  const std::string text = sample("1");
  EXPECT_GT(text.size(), 60U);
  EXPECT_EQ(text, sample("1"));
  EXPECT_NE(text, sample("2"));
}

TEST_F(TrainGpt, ControlCFinishesTheStepAndSumsUp) {
  const ProgramResult result = run_train_gpt(
      small({"--steps", "1000000", "--log", folder_.file("log"), "--weights", folder_.file("weights")}),
      "step       1/");
  EXPECT_EQ(result.exit_code, 130) << result.errors;
  EXPECT_THAT(result.output, HasSubstr("mean of the last"));
  EXPECT_THAT(result.output, HasSubstr("stopped by Ctrl-C"));
  EXPECT_EQ(contents_of(folder_.file("log")).back(), '\n');
  EXPECT_FALSE(contents_of(folder_.file("weights")).empty());
}

TEST_F(TrainGpt, DivergenceIsToldNotTrainedOn) {
  const ProgramResult result =
      run_train_gpt(small({"--steps", "50", "--learning-rate", "100000", "--warmup", "0", "--clip", "0"}));
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.errors, HasSubstr("--learning-rate"));
}

}  // namespace
}  // namespace stowage::samples
