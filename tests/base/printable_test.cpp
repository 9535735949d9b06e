#include "src/base/printable.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

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

// What a terminal obeys, or what reorders the text around it.
bool is_control(char32_t code) {
  return code < 0x20 || (code >= 0x7f && code <= 0x9f) || code == 0x61c || code == 0x200e || code == 0x200f ||
         (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

std::string utf8(char32_t code) {
  std::string text;
  const auto rest = [&](unsigned shift) { text += static_cast<char>(0x80U | ((code >> shift) & 0x3fU)); };
  if (code < 0x80) return {static_cast<char>(code)};
  if (code < 0x800) {
    text += static_cast<char>(0xc0U | (code >> 6U));
  } else {
    text += static_cast<char>(0xe0U | (code >> 12U));
    rest(6);
  }
  rest(0);
  return text;
}

TEST(Printable, SpellsOutEveryControlCharacter) {
  for (char32_t code = 0; code < 0x3000; ++code) {
    if (!is_control(code)) continue;
    const std::string spelled = fmt::format("a\\u{:04x}b", static_cast<unsigned>(code));
    EXPECT_EQ(printable('a' + utf8(code) + 'b'), spelled);
    if (code != '\t' && code != '\n') {
      EXPECT_EQ(printable_lines('a' + utf8(code) + 'b'), spelled);
    }
  }
}

TEST(Printable, RandomBytesBecomeTextWithoutControlCharacters) {
  std::mt19937 random(7);
  const std::vector<std::string> parts = {"\xe2\x80", "\xe2\x81", "\xd8", "\xc2", "\xf0\x9f", "a"};
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    for (std::size_t i = random() % 60; i > 0; --i)
      bytes += random() % 3 == 0 ? parts[random() % parts.size()] : std::string{static_cast<char>(random())};
    for (const std::string& text : {printable(bytes), printable_lines(bytes), printable_message(bytes)})
      for (std::string_view rest = text; !rest.empty();) {
        const Character character = take_character(rest);
        ASSERT_TRUE(character.code) << round;
        ASSERT_TRUE(!is_control(*character.code) || character.bytes == "\n" || character.bytes == "\t")
            << round;
      }
    EXPECT_EQ(printable(bytes).find_first_of("\n\t"), std::string::npos);
  }
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
