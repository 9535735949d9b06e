#include "tools/cli/place_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "tests/support/expect_refused.h"
#include "tests/support/temporary_folder.h"
#include "tests/tools/cli/run_stowage.h"

namespace stowage {
namespace {

using test::Result;
using test::run_stowage;
using ::testing::HasSubstr;

PlaceCommand parse_place(const std::string& line) {
  CLI::App app;
  RawPlaceOptions words;
  add_place(app, words);
  app.parse("place " + line, false);
  return parse(words);
}

TEST(PlaceOptions, SayLittleByDefault) {
  const PlaceCommand command = parse_place("x.csv");
  EXPECT_EQ(command.file, "x.csv");
  EXPECT_FALSE(command.capacity);
  EXPECT_EQ(command.seconds, 10);
  EXPECT_EQ(command.alignment, 1U);
  EXPECT_FALSE(command.json);
  EXPECT_EQ(command.output_file, "");
}

TEST(PlaceOptions, AreUnderstood) {
  const PlaceCommand command =
      parse_place("x.csv --capacity 1MiB --time 2.5 --alignment 1KiB --json --output y.csv");
  EXPECT_EQ(command.capacity, 1_MiB);
  EXPECT_EQ(command.seconds, 2.5);
  EXPECT_EQ(command.alignment, 1_KiB);
  EXPECT_TRUE(command.json);
  EXPECT_EQ(command.output_file, "y.csv");
}

TEST(PlaceOptions, NameTheOptionThatIsWrong) {
  test::expect_refused([] { parse_place("x.csv --capacity lots"); }, "--capacity: \"lots\"");
  test::expect_refused([] { parse_place("x.csv --capacity -1"); }, "--capacity: \"-1\"");
  test::expect_refused([] { parse_place("x.csv --alignment 1.5"); }, "--alignment: \"1.5\"");
}

// Of the program itself.
TEST(PlaceProgram, AnswersWithItsExitCode) {
  const TemporaryFolder folder;
  const std::string file = folder.make("x.csv", "id,lower,upper,size\na,0,2,512\nb,1,4,256\n");
  const Result fits =
      run_stowage("place " + file + " --capacity 768 --json --output " + folder.file("y.csv"));
  EXPECT_EQ(fits.code, 0) << fits.output;
  EXPECT_EQ(nlohmann::json::parse(fits.output)["fits"], true);
  EXPECT_EQ(folder.entries(), 2U);
  EXPECT_EQ(run_stowage("place " + file + " --capacity 767 --json").code, 2);
  EXPECT_EQ(run_stowage("place " + folder.file("y.csv")).code, 0);
  EXPECT_EQ(run_stowage("place --help").code, 0);
  EXPECT_THAT(run_stowage("place --help").output, HasSubstr("Exit code: 0 it fits, 2 "));
}

TEST(PlaceProgram, RefusesBadInputInOneLine) {
  const TemporaryFolder folder;
  const std::string bad = folder.make("bad.csv", "id,lower,upper,size\na,0,2,0\n");
  for (const auto& [arguments, words] : {std::pair{bad, "bad.csv', line 2: size is 0"},
                                         {folder.file("none.csv"), "none.csv'"},
                                         {bad + " --capacity lots", "--capacity: \"lots\""},
                                         {bad + " --time -1", "--time: -1"},
                                         {std::string("/dev/zero"), "/dev/zero'"}}) {
    const Result result = run_stowage("place " + arguments);
    EXPECT_EQ(result.code, 2) << result.output;
    EXPECT_THAT(result.output, HasSubstr(words));
    EXPECT_EQ(std::count(result.output.begin(), result.output.end(), '\n'), 1) << result.output;
  }
  EXPECT_EQ(run_stowage("place").code, 2);
  EXPECT_EQ(run_stowage("place x.csv --faster").code, 2);
}

}  // namespace
}  // namespace stowage
