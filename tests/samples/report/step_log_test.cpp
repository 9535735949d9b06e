#include "samples/report/step_log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "tests/support/temporary_folder.h"

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
  record.report.clip_scale = 1.0 / 9;
  record.report.speculated_updates = 17;
  record.unpinned_bytes = 19;
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
  EXPECT_EQ(read.at("clip_scale").get<double>(), 1.0 / 9);
  EXPECT_EQ(read.at("speculated_updates").get<std::uint64_t>(), 17U);
  EXPECT_EQ(read.at("unpinned_bytes").get<std::uint64_t>(), 19U);
  EXPECT_EQ(read.size(), 13U);
}

TEST(StepLog, CountsAttentionOnACard) {
  StepRecord record = awkward();
  record.attention = launches_since({1, 2, 3, {}}, {5, 2, 10, {"why"}});
  const auto read = nlohmann::json::parse(to_json_line(record));
  EXPECT_EQ(read.at("attention"), nlohmann::json({{"cudnn", 4}, {"own", 0}, {"plain", 7}}));
  EXPECT_EQ(kept_bytes(to_json_line(record) + '\n', 8), to_json_line(record).size() + 1);
}

TEST(StepLog, HasTheLossScaleInHalfPrecision) {
  StepRecord record = awkward();
  record.loss_scale = LossScale{1024, 5, 2};
  auto read = nlohmann::json::parse(to_json_line(record));
  EXPECT_EQ(read.at("loss_scale"), 1024);
  EXPECT_EQ(read.at("skipped_steps"), 2);
  record.report.overflowed = true;
  EXPECT_EQ(nlohmann::json::parse(to_json_line(record)).at("skipped_steps"), 3);
  const std::vector<std::string> measures = {"loss"};
  const EvaluationRecord evaluated{8, {"", {{"loss", 0.5}}}, 0.25, {}};
  const std::string header = csv_header(measures, true);
  EXPECT_TRUE(
      header.ends_with("attention_plain,loss_scale,skipped_steps,evaluation_loss,evaluation_seconds,best"));
  const std::string table =
      header + '\n' + to_csv_line(record, measures) + '\n' + to_csv_line(evaluated, true) + '\n';
  for (const std::string& line : {to_csv_line(record, measures), to_csv_line(evaluated, true)})
    EXPECT_EQ(std::count(line.begin(), line.end(), ','), std::count(header.begin(), header.end(), ','))
        << line;
  EXPECT_EQ(kept_bytes_of_csv(table, 8, header), table.size());
  const std::string lines = json_lines_of_csv(table, measures, true);
  read = nlohmann::json::parse(lines.substr(0, lines.find('\n')));
  EXPECT_EQ(read.at("loss_scale"), 1024);
  EXPECT_EQ(read.at("skipped_steps"), 3);
  EXPECT_FALSE(read.contains("evaluation"));
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

// They stand behind all steps, so a log that goes on has them no more; a table never does.
TEST(StepLog, HasARowOfEachRankAtItsEnd) {
  const TemporaryFolder folder;
  const std::string steps = to_json_line(awkward()) + '\n', row = to_json_line(RankRow{.rank = 1}) + '\n';
  {
    StepLog log(folder.file("log"));
    log.start();
    log.write(awkward());
    log.write(RankRow{.rank = 1});
    log.finish();
    EXPECT_EQ(contents_of(folder.file("log")), steps + row);
  }
  StepLog log(folder.file("log"));
  EXPECT_EQ(log.start(8), steps);
  StepLog table(folder.file("log.csv"));
  table.start();
  table.write(RankRow{});
  EXPECT_EQ(contents_of(folder.file("log.csv")), csv_header({}) + '\n');
}

// A log that goes on keeps it behind its step; a table has none.
TEST(StepLog, HasTheNoiseOfCodes) {
  const TemporaryFolder folder;
  const CodeNoiseRecord before{0, {{"a", 44.5, 0.25}, {"b.c", 20, 1}}, 0.5}, behind{8, {{"a", 1, 2}}, 3};
  EXPECT_EQ(to_json_line(before), R"({"step": 0, "codes": {"a": {"decibels": 44.5, "largest_error": 0.25}, )"
                                  R"("b.c": {"decibels": 20, "largest_error": 1}}, "seconds": 0.5})");
  const std::string text =
      to_json_line(before) + '\n' + to_json_line(awkward()) + '\n' + to_json_line(behind) + '\n';
  EXPECT_EQ(kept_bytes(text, 8), text.size());
  EXPECT_EQ(kept_bytes(text, 7), to_json_line(before).size() + 1);
  // A run that went on without the log, before one with it.
  StepRecord ninth = awkward(), tenth = awkward();
  ninth.report.step = 9;
  tenth.report.step = 10;
  const std::string gap = to_json_line(CodeNoiseRecord{9, {}, 0}) + '\n';
  const std::string later =
      to_json_line(awkward()) + '\n' + gap + to_json_line(ninth) + '\n' + to_json_line(tenth) + '\n';
  EXPECT_EQ(kept_bytes(later, 20), later.size());
  StepLog table(folder.file("log.csv"));
  table.start();
  table.write(before);
  EXPECT_EQ(contents_of(folder.file("log.csv")), csv_header({}) + '\n');
}

TEST(JsonLine, OfAnEvaluation) {
  EvaluationRecord record{7, {"for people", {{"loss", 0.1}, {"perplexity", 1.5}}}, 0.25};
  const std::string begin = R"({"step": 7, "evaluation": {"loss": 0.1, "perplexity": 1.5}, "seconds": 0.25)";
  EXPECT_EQ(to_json_line(record), begin + "}");
  record.best = true;
  EXPECT_EQ(to_json_line(record), begin + R"(, "best": true})");
  record.since_best = 3;
  record.stops = true;
  EXPECT_EQ(to_json_line(record), begin + R"(, "best": true, "since_best": 3, "stops": true})");
}

TEST(KeptBytes, EvaluationsStayBehindTheirSteps) {
  const auto step = [](int number) {
    StepRecord record;
    record.report.step = static_cast<std::uint64_t>(number - 1);
    return to_json_line(record) + '\n';
  };
  const auto evaluation = [](std::uint64_t number) {
    return to_json_line(EvaluationRecord{number, {"", {{"loss", 1}}}, 1}) + '\n';
  };
  const std::string log = step(1) + step(2) + evaluation(2) + step(3) + evaluation(3);
  EXPECT_EQ(kept_bytes(log, 3), log.size());
  EXPECT_EQ(kept_bytes(log, 2), (step(1) + step(2) + evaluation(2)).size());
  EXPECT_EQ(kept_bytes(step(1) + evaluation(2) + step(2), 2), step(1).size());
  // Of what a run began with, and of an earlier checkpoint.
  EXPECT_EQ(kept_bytes(evaluation(0) + step(1), 1), (evaluation(0) + step(1)).size());
  const std::string late = step(1) + step(2) + evaluation(1) + step(3);
  EXPECT_EQ(kept_bytes(late, 3), late.size());
}

const std::vector<std::string> measures = {"loss", "perplexity"};
const EvaluationRecord evaluated = {8, {"for people", {{"loss", 0.1}, {"perplexity", 1.5}}}, 0.25, false};

TEST(StepLogCsv, EveryRowHasTheHeadersColumns) {
  StepRecord on_a_card = awkward();
  on_a_card.attention = AttentionUse{4, 0, 7, {}};
  const std::string header = csv_header(measures);
  EXPECT_TRUE(header.starts_with("step,loss,grad_norm,learning_rate,tokens_per_second,"));
  EXPECT_TRUE(
      header.ends_with(",between_seconds,clip_scale,speculated_updates,attention_cudnn,attention_own,"
                       "attention_plain,"
                       "evaluation_loss,evaluation_perplexity,evaluation_seconds,best"));
  const auto commas = [](const std::string& line) { return std::count(line.begin(), line.end(), ','); };
  for (const std::string& line :
       {to_csv_line(awkward(), measures), to_csv_line(on_a_card, measures), to_csv_line(evaluated)})
    EXPECT_EQ(commas(line), commas(header)) << line;
  EXPECT_EQ(to_csv_line(evaluated), "8,,,,,,,,,,,,,,,,0.1,1.5,0.25,false");
  StepRecord diverged = awkward();
  diverged.report.loss = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(to_csv_line(diverged, measures).starts_with("8,,1.0000000000000002,"));
}

// Reports read what a run before has logged.
TEST(StepLogCsv, SaysWhatTheLinesOfJsonSay) {
  StepRecord on_a_card = awkward();
  on_a_card.attention = AttentionUse{4, 0, 7, {}};
  const std::string lines = json_lines_of_csv(
      csv_header(measures) + '\n' + to_csv_line(on_a_card, measures) + '\n' + to_csv_line(evaluated) + '\n',
      measures);
  const std::size_t end = lines.find('\n');
  const auto step = nlohmann::json::parse(lines.substr(0, end));
  const auto wanted = nlohmann::json::parse(to_json_line(awkward()));
  for (const auto& [name, value] : wanted.items()) EXPECT_EQ(step.at(name), value) << name;
  EXPECT_EQ(step.at("attention_plain"), 7);
  const auto evaluation = nlohmann::json::parse(lines.substr(end + 1));
  EXPECT_EQ(evaluation.at("step"), 8);
  EXPECT_EQ(evaluation.at("evaluation"), nlohmann::json({{"loss", 0.1}, {"perplexity", 1.5}}));
  EXPECT_EQ(evaluation.at("best"), false);
}

TEST(StepLogCsv, GoesOnUnderItsHeader) {
  const TemporaryFolder folder;
  const std::string header = csv_header(measures) + '\n', row = to_csv_line(awkward(), measures) + '\n';
  const std::string other = csv_header({"loss"}) + '\n';
  const auto left = [&](const std::string& before, std::uint64_t completed) {
    StepLog log(folder.make("log.csv", before));
    log.start(completed, measures);
    return contents_of(folder.file("log.csv"));
  };
  EXPECT_EQ(left(header + row, 8), header + row);
  EXPECT_EQ(left(header + row, 7), header);
  EXPECT_EQ(left(header + row + "9,1", 9), header + row);
  EXPECT_EQ(left(header + row + "9,1\n", 9), header + row);
  EXPECT_EQ(left(other + row, 9), header);
  EXPECT_EQ(left("some text\n", 9), header);
  EXPECT_EQ(left("", 9), header);
  EXPECT_EQ(left(header + row, 0), header);
  const std::string evaluation = to_csv_line(evaluated) + '\n';
  EXPECT_EQ(left(header + row + evaluation, 8), header + row + evaluation);
  EXPECT_EQ(left(header + evaluation + row, 8), header + evaluation);  // not the next step
}

}  // namespace
}  // namespace stowage::samples
