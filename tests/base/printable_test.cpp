#include "src/base/printable.h"

#include <gtest/gtest.h>

namespace stowage {
namespace {

TEST(Printable, LeavesPlainTextAlone) {
  EXPECT_EQ(printable("h.3.mlp.fc — größer, 日本語, 🚢"), "h.3.mlp.fc — größer, 日本語, 🚢");
  EXPECT_EQ(printable(""), "");
}

TEST(Printable, SpellsOutWhatATerminalObeys) {
  EXPECT_EQ(printable("\x1b]0;title\x07\x1b[31m"), "\\u001b]0;title\\u0007\\u001b[31m");
  EXPECT_EQ(printable("a\nb\tc\x7f"), "a\\u000ab\\u0009c\\u007f");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\u009b31m");  // the same escape in one character
  EXPECT_EQ(printable("safe\xe2\x80\xaegpj.exe"), "safe\\u202egpj.exe");
}

TEST(Printable, SpellsOutWhatIsNoUtf8) {
  EXPECT_EQ(printable("a\xff"), "a\\xff");
  EXPECT_EQ(printable("\xc0\xbc"), "\\xc0\\xbc");           // overlong
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // a surrogate
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
  EXPECT_EQ(printable("\xe6\x97"), "\\xe6\\x97");  // cut
}

TEST(Printable, CutsBetweenCharacters) {
  EXPECT_EQ(printable("größer", 6), "größer");
  EXPECT_EQ(printable("größer", 4), "größ…");
  EXPECT_EQ(printable(std::string(longest_shown_name, 'a')).size(), longest_shown_name);
  EXPECT_EQ(printable(std::string(1 << 20, 'a')), std::string(longest_shown_name, 'a') + "…");
}

TEST(PrintableLines, KeepsLinesAndLength) {
  EXPECT_EQ(printable_lines("a\tb\n\x1b[2J\r\n"), "a\tb\n\\u001b[2J\\u000d\n");
  EXPECT_EQ(printable_lines(std::string(1000, 'a')).size(), 1000U);
}

TEST(PrintableMessage, CutsTheMiddleOfLongWords) {
  const std::string half(longest_shown_name / 2, 'a');
  EXPECT_EQ(printable_message("--data " + half + half + "\tno \x1b file\n"),
            "--data " + half + half + "\tno \\u001b file\n");
  EXPECT_EQ(printable_message("'" + half + std::string(5000, 'b') + half + "': no file"),
            "'" + half.substr(1) + "…" + half.substr(2) + "': no file");
  std::string umlauts;
  for (std::size_t i = 0; i < longest_shown_name + 1; ++i) umlauts += "ö";
  EXPECT_EQ(printable_message(umlauts).size(), 2 * longest_shown_name + std::string_view("…").size());
  EXPECT_EQ(printable_message(""), "");
}

}  // namespace
}  // namespace stowage
