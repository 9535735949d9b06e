#include "tools/cli/tokens_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>

#include "tests/support/expect_refused.h"
#include "tests/support/temporary_folder.h"
#include "tests/tools/cli/run_stowage.h"

namespace stowage {
namespace {

using ::testing::HasSubstr;

TEST(TokensOptions, VersionsOfShards) {
  RawTokensOptions words;
  EXPECT_FALSE(parse(words).version);
  words.version = 7;
  EXPECT_EQ(parse(words).version, ShardVersion::four_bytes);
  words.version = 2;
  test::expect_refused([&] { parse(words); }, "--shard-version: 2 is none that llm.c has; give 1 or 7");
}

TEST(TokensProgram, TrainsAndEncodes) {
  const TemporaryFolder folder;
  const std::string text = folder.make("x.txt", "the cat and the other cat");
  const auto trained =
      test::run_stowage("tokens train " + text + " --vocabulary 260 --output " + folder.file("v"));
  EXPECT_EQ(trained.code, 0) << trained.output;
  const auto encoded = test::run_stowage("tokens encode " + text + " --tokenizer " + folder.file("v") +
                                         " --output " + folder.file("x.bin"));
  EXPECT_EQ(encoded.code, 0) << encoded.output;
  EXPECT_THAT(encoded.output, HasSubstr("vocabulary    260 tokens\n"));
}

TEST(TokensProgram, RefusesWithCode2) {
  EXPECT_EQ(test::run_stowage("tokens").code, 2);
  EXPECT_EQ(test::run_stowage("tokens train x").code, 2);
  const auto refused = test::run_stowage("tokens train none.txt --vocabulary 300 --output out");
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.output, HasSubstr("stowage: cannot read 'none.txt'"));
}

}  // namespace
}  // namespace stowage
