#include "src/tokens/unicode.h"

#include <gtest/gtest.h>

#include <vector>

namespace stowage {
namespace {

std::vector<CodePoint> points_of(std::string_view text) {
  std::vector<CodePoint> points;
  for (std::size_t at = 0; at < text.size();) points.push_back(next_code_point(text, at));
  return points;
}

std::u32string lower_case_of(CodePoint point) {
  std::u32string text;
  append_lower_case(point, text);
  return text;
}

TEST(Unicode, ReadsWhatItWrites) {
  for (CodePoint point = 0; point < 0x110000; ++point) {
    if (point >= 0xD800 && point < 0xE000) continue;
    std::string text;
    append_utf8(point, text);
    ASSERT_EQ(points_of(text), std::vector<CodePoint>{point});
  }
}

TEST(Unicode, TakesIllFormedTextInMaximalParts) {
  const auto bad = ill_formed;
  EXPECT_EQ(points_of("a\x80z"), (std::vector<CodePoint>{'a', bad, 'z'}));
  EXPECT_EQ(points_of("\xE2\x82"), (std::vector<CodePoint>{bad}));                // cut short
  EXPECT_EQ(points_of("\xE2\x82\x41"), (std::vector<CodePoint>{bad, 'A'}));       // cut short by a letter
  EXPECT_EQ(points_of("\xED\xA0\x80"), (std::vector<CodePoint>{bad, bad, bad}));  // a surrogate
  EXPECT_EQ(points_of("\xC0\xAF"), (std::vector<CodePoint>{bad, bad}));           // longer than need be
  EXPECT_EQ(points_of("\xF4\x90\x80\x80"),
            (std::vector<CodePoint>{bad, bad, bad, bad}));  // past the last plane
}

TEST(Unicode, ClassesOfGpt2) {
  for (const CodePoint point :
       std::initializer_list<CodePoint>{'a', 'Z', 0xAA, 0xE9, 0x3B1, 0x5D0, 0x4E2D, 0x31350})
    EXPECT_EQ(class_of(point), CharacterClass::letter) << point;
  for (const CodePoint point : {int{'7'}, 0xB2, 0x0BF0, 0x2167, 0x3021, 0x1D7D8})
    EXPECT_EQ(class_of(point), CharacterClass::number) << point;
  for (const CodePoint point :
       std::initializer_list<CodePoint>{' ', '\t', '\v', 0x85, 0xA0, 0x1680, 0x2029, 0x3000})
    EXPECT_EQ(class_of(point), CharacterClass::space) << point;
  // A mark, a zero-width space, an emoji, what is not assigned, what is no character, and what Unicode 16
  // brought.
  for (const CodePoint point : {int{'_'}, 0x301, 0x200B, 0x1F600, 0x378, 0xFFFF, 0x1C89, 0x2EBF0, ill_formed})
    EXPECT_EQ(class_of(point), CharacterClass::other) << point;
}

TEST(Unicode, CategoriesOfBertAreThoseOfUnicode8) {
  for (const CodePoint point :
       std::initializer_list<CodePoint>{0x1, 0x7F, 0x9F, 0xAD, 0x200D, 0xE000, 0x10FFFD})
    EXPECT_TRUE(is_control(point)) << point;
  // U+08E2 is a format character that came with Unicode 9.
  for (const CodePoint point : {int{'\t'}, int{'\n'}, int{'\r'}, 0x8E2, 0x378, 0xFFFF})
    EXPECT_FALSE(is_control(point)) << point;
  for (const CodePoint point :
       std::initializer_list<CodePoint>{'!', '$', '~', '^', '`', 0xA1, 0x2014, 0x3001, 0x166D, 0x111C9})
    EXPECT_TRUE(is_punctuation(point)) << point;
  for (const CodePoint point : {int{'a'}, int{'0'}, int{' '}, 0x7F, 0xA9, 0x20AC, 0x2E43})
    EXPECT_FALSE(is_punctuation(point)) << point;
  for (const CodePoint point : std::initializer_list<CodePoint>{0x301, 0x5B0, 0x1734})
    EXPECT_TRUE(is_accent(point)) << point;
  for (const CodePoint point : std::initializer_list<CodePoint>{0x1885, 0xA9BD, 0x111C9, 0x8CA, 0x93F})
    EXPECT_FALSE(is_accent(point)) << point;
}

TEST(Unicode, BlocksOfChineseCharacters) {
  for (const CodePoint point :
       std::initializer_list<CodePoint>{0x3400, 0x4E00, 0x9FFF, 0xF900, 0x20000, 0x2B81F, 0x2B920, 0x2FA1F})
    EXPECT_TRUE(is_chinese(point));
  for (const CodePoint point :
       std::initializer_list<CodePoint>{0x33FF, 0x4DC0, 0x3042, 0xAC00, 0x2B820, 0x2CEB0, 0x2FA20})
    EXPECT_FALSE(is_chinese(point));
}

TEST(Unicode, DecomposesAndOrdersMarks) {
  EXPECT_EQ(decomposed(U"\u1EBF"), U"e\u0302\u0301");
  EXPECT_EQ(decomposed(U"a\u0301\u0327"), U"a\u0327\u0301");    // the lower class first
  EXPECT_EQ(decomposed(U"a\u0301\u0300b"), U"a\u0301\u0300b");  // of one class as they stand
  EXPECT_EQ(decomposed(U"각"), U"\u1100\u1161\u11A8");
  EXPECT_EQ(decomposed(U"\U00011938"), U"\U00011938");  // newer than Unicode 12.1
}

TEST(Unicode, LowerCase) {
  EXPECT_EQ(lower_case_of('A'), U"a");
  EXPECT_EQ(lower_case_of(0x130), U"i\u0307");
  EXPECT_EQ(lower_case_of(0x3A3), U"\u03C3");
  EXPECT_EQ(lower_case_of(0xA7CB), U"\uA7CB");  // newer than Unicode 15.0
}

}  // namespace
}  // namespace stowage
