#include "tools/cli/unexpected.h"

#include <gtest/gtest.h>

namespace stowage {
namespace {

TEST(Nearest, TakesTheFewestChanges) {
  const std::vector<std::string> names = {"plan", "place", "replay", "tokens"};
  EXPECT_EQ(nearest("plam", names), "plan");
  EXPECT_EQ(nearest("palce", names), "place");
  EXPECT_EQ(nearest("rpelay", names), "replay");
  EXPECT_EQ(nearest("tok", names), "tokens");
  EXPECT_EQ(nearest("xyzzy", names), "");
  EXPECT_EQ(nearest("plan", {}), "");
}

// What unexpected_word says once `words` are refused.
std::string said_of(std::vector<std::string> words) {
  CLI::App app("", "stowage");
  app.require_subcommand(1);
  CLI::App* const plan = app.add_subcommand("plan", "");
  int heads = 0;
  plan->add_option("--heads", heads, "");
  CLI::App* const tokens = app.add_subcommand("tokens", "");
  tokens->add_subcommand("train", "");
  tokens->add_subcommand("encode", "");
  tokens->require_subcommand(1);
  try {
    app.parse(std::move(words));
    return "no refusal";
  } catch (const CLI::ParseError&) {
    return unexpected_word(app);
  }
}

TEST(UnexpectedWord, NamesTheWordAndTheNearest) {
  EXPECT_EQ(said_of({"plam"}),
            "plam: there is no such command; did you mean plan? stowage --help lists them");
  EXPECT_EQ(said_of({"xyzzy"}),
            "xyzzy: there is no such command; give one of plan, tokens; stowage --help lists them");
  EXPECT_EQ(said_of({"plan", "xyzzy"}).substr(0, 5), "xyzzy") << "words come last first, as CLI11 takes them";
  EXPECT_EQ(said_of({"tarin", "tokens"}),
            "tarin: there is no such command; did you mean train? stowage tokens --help lists them");
  EXPECT_EQ(said_of({"2", "--head", "plan"}),
            "--head: there is no such flag; did you mean --heads? stowage plan --help lists them");
  EXPECT_EQ(said_of({"other", "plan"}),
            "other: there is no such argument; leave it out; stowage plan --help lists them");
}

TEST(UnexpectedWord, SaysNothingOfOtherMistakes) {
  EXPECT_EQ(said_of({}), "");
  EXPECT_EQ(said_of({"two", "--heads", "plan"}), "");
}

TEST(UnexpectedWord, IsCutAndPrintable) {
  const std::string said = said_of({"\x1b[31m" + std::string(1000, 'x')});
  EXPECT_EQ(said.substr(0, 12), "\\u001b[31mxx");
  EXPECT_LT(said.size(), 400U);
}

}  // namespace
}  // namespace stowage
