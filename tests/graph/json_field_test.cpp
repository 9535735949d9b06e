#include "src/graph/json_field.h"

#include <gtest/gtest.h>

#include "tests/support/expect_refused.h"

namespace stowage {
namespace {

const JsonSource source{"a file", "give another", "the whole"};

std::string refusal_of(std::string_view text) {
  try {
    parse_json(text, source);
  } catch (const InvalidInput& error) {
    return error.what();
  }
  return "no refusal";
}

TEST(ParseJson, SaysWhyWithoutTheMarksOfTheLibrary) {
  const std::string refusal = refusal_of("{\"a\": }");
  EXPECT_EQ(refusal.find("json.exception"), std::string::npos) << refusal;
  EXPECT_EQ(refusal.find("a file: 'the whole' does not parse (parse error at line 1, column 7"), 0U)
      << refusal;
  EXPECT_TRUE(refusal.ends_with("; give another")) << refusal;
  EXPECT_EQ(refusal_of("1e999").find("exception"), std::string::npos);
}

TEST(ParseJson, CutsAndSpellsOutWhatItQuotes) {
  const std::string refusal = refusal_of("{\"" + std::string(1 << 20, 'x') + "\xc2\x9b");
  EXPECT_LT(refusal.size(), 400U);
  EXPECT_EQ(refusal_of("\"\xc2\x9b"
                       "31m")
                .find("\xc2\x9b"),
            std::string::npos);
}

TEST(ParseJson, RefusesOneNameTwiceInAnObject) {
  EXPECT_EQ(refusal_of(R"({"a": {"b": 1, "c": {}, "b": 2}})"),
            "a file: \"b\" stands twice in one object; give another");
  EXPECT_EQ(refusal_of(R"([{"a": {"a": 1}, "b": {"a": 1}}, {"a": 1}])"), "no refusal");
}

TEST(ParseJson, RefusesAByteOfZero) {
  EXPECT_EQ(refusal_of(std::string_view("{}\0", 3)), "a file: byte 3 is 0, which no text has; give another");
  EXPECT_EQ(refusal_of(std::string_view("{}\0more", 7)),
            "a file: byte 3 is 0, which no text has; give another");
}

TEST(JsonField, CutsTheNameOfAFieldThatIsNotKnown) {
  const nlohmann::json json = {{std::string(5000, 'x') + "\x1b", 1}};
  try {
    JsonField(json, source).require_members({"a"});
    FAIL() << "accepted";
  } catch (const InvalidInput& error) {
    EXPECT_EQ(std::string(error.what()),
              "a file: '" + std::string(200, 'x') + "…' is not a known field; give another");
  }
}

TEST(InQuotes, IsAsciiOnOneLineAndCut) {
  EXPECT_EQ(in_quotes("a\n\x1bä\""), R"("a\n\u001b\u00e4\"")");
  EXPECT_LT(in_quotes(std::string(5000, 'x')).size(), 220U);
}

}  // namespace
}  // namespace stowage
