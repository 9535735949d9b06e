// The trainers and `stowage plan` answer the same question with the same figures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "tests/samples/documents.h"
#include "tests/samples/machine_json.h"
#include "tests/samples/run_program.h"
#include "tests/support/temporary_folder.h"

namespace stowage::samples {
namespace {

using ::testing::HasSubstr;
using Words = std::vector<std::string>;

// The first group of `pattern`, which stands at the beginning of a line.
std::string found(const std::string& text, const std::string& pattern) {
  std::smatch match;
  EXPECT_TRUE(std::regex_search(text, match, std::regex("(?:^|\n) *" + pattern))) << pattern << '\n' << text;
  return match.empty() ? "" : match[1].str();
}

struct Figures {
  Bytes need, minimum, overhead, peak;
  std::string shares, step, tokens, stall, bound;
  friend bool operator==(const Figures&, const Figures&) = default;
};

Figures figures_in(const std::string& text) {
  const auto bytes = [&](const std::string& label) {
    return Bytes{std::stoull("0" + found(text, label + " [^\n]*?\\((\\d+) bytes\\)"))};
  };
  return {bytes("need"),
          bytes("minimum"),
          bytes("in each"),
          bytes("(?:plan +)?peak"),
          found(text, "(?:plan +)?peak [^,]*, (\\S+) of the need") + " " +
              found(text, "minimum [^,]*, (\\S+) of the need"),
          found(text, "(?:step|predicted) +(\\S+ \\S+) (?:predicted|per step),"),
          found(text, "(?:step|predicted) +[^\n]* (\\S+) tokens/s"),
          found(text, "(?:step|predicted) +[^\n]* stall (\\S+)\n"),
          found(text, "lower bound +(\\S+ \\S+) ")};
}

class SameAnswer : public ::testing::Test {
 protected:
  struct Case {
    const char* family;
    Words options;  // of both programs
  };
  static Words joined(Words words, const Case& of, const std::string& memory) {
    words.insert(words.end(), of.options.begin(), of.options.end());
    if (!memory.empty()) words.insert(words.end(), {"--device-memory", memory});
    return words;
  }
  ProgramResult train(const Case& of, const std::string& memory) const {
    const bool bert = of.family == std::string("bert");
    Words words = {"--data",     bert ? documents_ : text_,
                   "--device",   "simulated",
                   "--layers",   "2",
                   "--width",    "64",
                   "--machine",  machine_,
                   "--plan-only"};
    if (bert) words.insert(words.end(), {"--vocabulary", "280"});  // and the special ones
    return run_program(bert ? STOWAGE_TRAIN_BERT : STOWAGE_TRAIN_GPT, joined(words, of, memory));
  }
  ProgramResult stowage_plan(const Case& of, const std::string& memory) const {
    const bool bert = of.family == std::string("bert");
    return run_program(STOWAGE_PROGRAM, joined({"plan", bert ? "--bert" : "--gpt", "2x64", "--vocabulary",
                                                bert ? "284" : "256", "--machine", machine_},
                                               of, memory));
  }
  // What both of them say.
  Figures both(const Case& of, const std::string& memory) const {
    const Figures of_plan = figures_in(well(stowage_plan(of, memory)).output);
    const std::string table = well(train(of, memory)).output;
    EXPECT_TRUE(of_plan == figures_in(table)) << table << stowage_plan(of, memory).output;
    EXPECT_EQ(of_plan.overhead, 1_MiB);
    return of_plan;
  }
  Figures both(const std::string& memory) const { return both(usual_, memory); }

  const Case usual_{"gpt", {"--heads", "2", "--sequence", "32", "--batch", "4", "--type", "f32"}};
  TemporaryFolder folder_;
  std::string text_ = folder_.make("text", std::string(1000, 'x'));
  std::string documents_ = folder_.make("documents", documents());
  std::string machine_ = folder_.make("machine.json", machine_json({DataType::f32, DataType::bf16}));
};

TEST_F(SameAnswer, HasTheOverheadInEveryFigureOnce) {
  const Figures free = both("");
  EXPECT_LE(free.peak, free.need);
  EXPECT_GT(free.minimum, 1_MiB);
  // Each figure can be asked with again.
  EXPECT_TRUE(both(std::to_string(free.need)) == free);
  const Figures least = both(std::to_string(free.minimum));
  EXPECT_EQ(least.minimum, free.minimum);
  EXPECT_EQ(least.need, free.need);
  EXPECT_EQ(least.peak, free.minimum);
  const Figures between = both(std::to_string((free.minimum + free.need) / 2));
  EXPECT_LE(both(std::to_string(between.peak)).peak, between.peak);
}

TEST_F(SameAnswer, ForEachOptionOfTheModel) {
  const std::vector<Words> options = {{},
                                      {"--batch", "1"},
                                      {"--batch", "6", "--micro-batches", "3"},
                                      {"--micro-batches", "4", "--gradient-groups", "2"},
                                      {"--head-chunk", "24", "--moments", "8bit"},
                                      {"--type", "bf16", "--moments", "bf16"}};
  for (const char* family : {"gpt", "bert"})
    for (const Words& each : options) {
      Case of{family, {"--heads", "4", "--sequence", "32"}};
      if (each.empty() || each.front() != "--batch") of.options.insert(of.options.end(), {"--batch", "8"});
      of.options.insert(of.options.end(), each.begin(), each.end());
      if (each.empty() || each.front() != "--type") of.options.insert(of.options.end(), {"--type", "f32"});
      SCOPED_TRACE(family + std::string(each.empty() ? "" : " " + each.front() + " " + each.back()));
      const Figures free = both(of, "");
      if (each.empty()) both(of, std::to_string((free.minimum + free.need) / 2));
    }
}

TEST_F(SameAnswer, RefusesWithTheMinimum) {
  const std::string minimum = std::to_string(both("").minimum);
  for (const std::string& memory : {std::to_string(std::stoull(minimum) - 1), std::string("1000")}) {
    expect_refusal(train(usual_, memory),
                   {"--device-memory " + memory, "the smallest that works is " + minimum});
    const ProgramResult refused = stowage_plan(usual_, memory);
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_THAT(refused.output, HasSubstr("the smallest budget that works is " + minimum + "\n"));
  }
}

}  // namespace
}  // namespace stowage::samples
