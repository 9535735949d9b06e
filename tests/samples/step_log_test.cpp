#include "samples/step_log.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "tests/samples/temporary_folder.h"

namespace stowage::samples {
namespace {

StepRecord awkward() {
  StepRecord record;
  record.report.step = 7;
  record.report.loss = 0.1 + 0.2;
  record.report.grad_norm = std::nextafter(1.0, 2.0);
  record.report.stall_fraction = 1.0 / 3;
  record.report.idle_seconds = 1.0 / 7;
  record.report.device_peak_bytes = 9007199254740993U;
  record.report.h2d_bytes = 11;
  record.report.d2h_bytes = 13;
  record.learning_rate = 5e-324;
  record.tokens_per_second = 1e22;
  return record;
}

TEST(StepLog, ReadsBackExactly) {
  const StepRecord record = awkward();
  const auto read = nlohmann::json::parse(to_json_line(record));
  EXPECT_EQ(read.at("step").get<std::uint64_t>(), 8U);
  EXPECT_EQ(read.at("loss").get<double>(), record.report.loss);
  EXPECT_EQ(read.at("grad_norm").get<double>(), record.report.grad_norm);
  EXPECT_EQ(read.at("learning_rate").get<double>(), record.learning_rate);
  EXPECT_EQ(read.at("tokens_per_second").get<double>(), record.tokens_per_second);
  EXPECT_EQ(read.at("device_peak_bytes").get<std::uint64_t>(), 9007199254740993U);
  EXPECT_EQ(read.at("h2d_bytes").get<std::uint64_t>(), 11U);
  EXPECT_EQ(read.at("d2h_bytes").get<std::uint64_t>(), 13U);
  EXPECT_EQ(read.at("stall_fraction").get<double>(), 1.0 / 3);
  EXPECT_EQ(read.at("between_seconds").get<double>(), 1.0 / 7);
  EXPECT_EQ(read.size(), 10U);
}

TEST(StepLog, CountsAttentionOnACard) {
  StepRecord record = awkward();
  record.attention = launches_since({1, 2, 3, {}}, {5, 2, 10, {"why"}});
  const auto read = nlohmann::json::parse(to_json_line(record));
  EXPECT_EQ(read.at("attention"), nlohmann::json({{"cudnn", 4}, {"own", 0}, {"plain", 7}}));
  EXPECT_EQ(kept_bytes(to_json_line(record) + '\n', 8), to_json_line(record).size() + 1);
}

TEST(StepLog, NoNumberIsNull) {
  StepRecord record;
  record.report.loss = std::numeric_limits<double>::quiet_NaN();
  record.report.grad_norm = std::numeric_limits<double>::infinity();
  const auto read = nlohmann::json::parse(to_json_line(record));
  EXPECT_TRUE(read.at("loss").is_null());
  EXPECT_TRUE(read.at("grad_norm").is_null());
}

TEST(StepLog, OneLinePerStepAtOnce) {
  const TemporaryFolder folder;
  StepLog log(folder.make("log", "old"));
  log.start();
  log.write(awkward());
  EXPECT_EQ(contents_of(folder.file("log")), to_json_line(awkward()) + '\n');
  log.write(awkward());
  EXPECT_EQ(contents_of(folder.file("log")), to_json_line(awkward()) + '\n' + to_json_line(awkward()) + '\n');
}

TEST(StepLog, GoesOnBehindTheStepsThatAreMade) {
  const std::string first = R"({"step": 3, "loss": 1})"
                            "\n";
  const std::string second = R"({"step": 4, "loss": 1})"
                             "\n";
  EXPECT_EQ(kept_bytes(first + second, 9), first.size() + second.size());
  EXPECT_EQ(kept_bytes(first + second, 3), first.size());
  EXPECT_EQ(kept_bytes(first + second, 2), 0U);
  EXPECT_EQ(kept_bytes(first + first, 9), first.size());  // not the next step
  EXPECT_EQ(kept_bytes(first + second.substr(0, 9), 9), first.size());
  EXPECT_EQ(kept_bytes(first + R"({"step": 4, "lo)"
                               "\n",
                       9),
            first.size());
  // A run without a log was between them.
  const std::string far = R"({"step": 9, "loss": 1})"
                          "\n";
  EXPECT_EQ(kept_bytes(first + far, 9), first.size() + far.size());
  EXPECT_EQ(kept_bytes(far + first, 9), far.size());
  EXPECT_EQ(kept_bytes("some text\n" + first, 9), 0U);
  EXPECT_EQ(kept_bytes("", 9), 0U);

  const TemporaryFolder folder;
  StepLog log(folder.make("log", first + second));
  EXPECT_EQ(log.start(3), first);
  log.write(awkward());
  EXPECT_EQ(contents_of(folder.file("log")), first + to_json_line(awkward()) + '\n');
}

TEST(JsonLine, OfAnEvaluation) {
  const Evaluation evaluation = {"for people", {{"loss", 0.1}, {"perplexity", 1.5}}};
  EXPECT_EQ(to_json_line(7, evaluation, 0.25),
            R"({"step": 7, "evaluation": {"loss": 0.1, "perplexity": 1.5}, "seconds": 0.25})");
}

TEST(KeptBytes, EvaluationsStayBehindTheirSteps) {
  const auto step = [](int number) {
    StepRecord record;
    record.report.step = static_cast<std::uint64_t>(number - 1);
    return to_json_line(record) + '\n';
  };
  const auto evaluation = [](std::uint64_t number) {
    return to_json_line(number, {"", {{"loss", 1}}}, 1) + '\n';
  };
  const std::string log = step(1) + step(2) + evaluation(2) + step(3) + evaluation(3);
  EXPECT_EQ(kept_bytes(log, 3), log.size());
  EXPECT_EQ(kept_bytes(log, 2), (step(1) + step(2) + evaluation(2)).size());
  EXPECT_EQ(kept_bytes(step(1) + evaluation(2) + step(2), 2), step(1).size());
  EXPECT_EQ(kept_bytes(evaluation(1) + step(2), 2), 0U);
}

}  // namespace
}  // namespace stowage::samples
