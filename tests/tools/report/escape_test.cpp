#include "tools/report/escape.h"

#include <gtest/gtest.h>

namespace stowage::report {
namespace {

using nlohmann::json;

TEST(HtmlText, LeavesPlainTextAlone) {
  EXPECT_EQ(html_text("h.3.mlp.fc — größer, 日本語, 🚢"), "h.3.mlp.fc — größer, 日本語, 🚢");
  EXPECT_EQ(html_text(""), "");
}

TEST(HtmlText, EscapesWhatHtmlReads) {
  EXPECT_EQ(html_text("</title><img src=x onerror='a(\"b\")'>&amp;"),
            "&lt;/title&gt;&lt;img src=x onerror=&#39;a(&quot;b&quot;)&#39;&gt;&amp;amp;");
}

TEST(HtmlText, SpellsOutWhatHidesOrReorders) {
  EXPECT_EQ(html_text(std::string("a\0b", 3)), "a\\u0000b");
  EXPECT_EQ(html_text("a\nb\x7f\xc2\x85"), "a\\u000ab\\u007f\\u0085");
  EXPECT_EQ(html_text("safe\xe2\x80\xae"
                      "gpj.exe"),
            "safe\\u202egpj.exe");
  EXPECT_EQ(html_text("\xef\xbb\xbfx\xe2\x80\x8b"), "\\ufeffx\\u200b");
}

TEST(HtmlText, ReplacesInvalidUtf8) {
  EXPECT_EQ(html_text("a\xff<"), "a\xef\xbf\xbd&lt;");
  EXPECT_EQ(html_text("\xc0\xbc"), "\xef\xbf\xbd\xef\xbf\xbd");  // '<', overlong
}

TEST(ScriptJson, ParsesBackToTheSame) {
  const json value = {{"</script><!--", {"<b>", "a'b\"c\\", "\xe2\x80\xa8", "line\nbreak", "日本"}},
                      {"n", 1.5}};
  EXPECT_EQ(json::parse(script_json(value)), value);
}

TEST(ScriptJson, HoldsNothingThatEndsAScript) {
  const std::string text =
      script_json({"</script>", "<!--", "-->", "]]>", "&lt;", "'", "\xe2\x80\xa8", "\x7f"});
  EXPECT_EQ(text.find_first_of("<>&'"), std::string::npos) << text;
  for (const char c : text) EXPECT_TRUE(c >= 0x20) << text;
}

TEST(ScriptJson, ReplacesInvalidUtf8) { EXPECT_EQ(script_json("a\xff"), "\"a\\ufffd\""); }

}  // namespace
}  // namespace stowage::report
