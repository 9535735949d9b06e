// train_gpt and `stowage plan` answer the same question with the same figures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

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
  static void add(Words& words, const std::string& memory) {
    if (!memory.empty()) words.insert(words.end(), {"--device-memory", memory});
  }
  ProgramResult train_gpt(const std::string& memory) const {
    Words words = {"--data", text_,     "--device",  "simulated",  "--layers",   "2",       "--width",
                   "64",     "--heads", "2",         "--sequence", "32",         "--batch", "4",
                   "--type", "f32",     "--machine", machine_,     "--plan-only"};
    add(words, memory);
    return run_train_gpt(words);
  }
  ProgramResult stowage_plan(const std::string& memory) const {
    Words words = {"plan", "--gpt",        "2x64", "--heads", "2",   "--sequence", "32",    "--batch",
                   "4",    "--vocabulary", "256",  "--type",  "f32", "--machine",  machine_};
    add(words, memory);
    return run_program(STOWAGE_PROGRAM, words);
  }
  // What both of them say.
  Figures both(const std::string& memory) const {
    const Figures of_plan = figures_in(well(stowage_plan(memory)).output);
    const std::string table = well(train_gpt(memory)).output;
    EXPECT_TRUE(of_plan == figures_in(table)) << table << stowage_plan(memory).output;
    EXPECT_EQ(of_plan.overhead, 1_MiB);
    return of_plan;
  }

  TemporaryFolder folder_;
  std::string text_ = folder_.make("text", std::string(1000, 'x'));
  std::string machine_ = folder_.make("machine.json", machine_json({DataType::f32}));
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

TEST_F(SameAnswer, RefusesWithTheMinimum) {
  const std::string minimum = std::to_string(both("").minimum);
  for (const std::string& memory : {std::to_string(std::stoull(minimum) - 1), std::string("1000")}) {
    expect_refusal(train_gpt(memory), {"--device-memory " + memory, "the smallest that works is " + minimum});
    const ProgramResult refused = stowage_plan(memory);
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_THAT(refused.output, HasSubstr("the smallest budget that works is " + minimum + "\n"));
  }
}

}  // namespace
}  // namespace stowage::samples
