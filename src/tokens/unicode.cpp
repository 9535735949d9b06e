#include "src/tokens/unicode.h"

#include <unicode/uchar.h>
#include <unicode/unorm2.h>
#include <unicode/utf16.h>
#include <unicode/utf8.h>

#include <algorithm>
#include <array>
#include <tuple>

#include "stowage/error.h"

namespace stowage {
namespace {

// Whether Unicode `major`.`minor` has the character.
bool known_in(CodePoint point, std::uint8_t major, std::uint8_t minor) {
  UVersionInfo age;
  u_charAge(point, age);
  return age[0] != 0 && std::tie(age[0], age[1]) <= std::tie(major, minor);
}

// Returns the general category (a UCharCategory) in Unicode 8.0: today's, except for characters that came or
// changed since.
int category_of_unicode_8(CodePoint point) {
  switch (point) {
    case 0x166D:
    case 0x111C9:
      return U_OTHER_PUNCTUATION;
    case 0x1734:
      return U_NON_SPACING_MARK;
    case 0x1885:
    case 0x1886:
      return U_OTHER_LETTER;
    case 0xA9BD:
      return U_COMBINING_SPACING_MARK;
    default:
      return known_in(point, 8, 0) ? u_charType(point) : int{U_UNASSIGNED};
  }
}

const UNormalizer2& nfd() {
  static const UNormalizer2* const instance = [] {
    UErrorCode error = U_ZERO_ERROR;
    const UNormalizer2* found = unorm2_getNFDInstance(&error);
    if (U_FAILURE(error) != 0)
      throw Error(std::string("ICU has no NFD (") + u_errorName(error) + "); install its data");
    return found;
  }();
  return *instance;
}

std::uint8_t combining_class(char32_t point) {
  const auto code = static_cast<CodePoint>(point);
  return known_in(code, 12, 1) ? u_getCombiningClass(code) : 0;
}

void append_decomposition(char32_t point, std::u32string& result) {
  const auto code = static_cast<CodePoint>(point);
  std::array<UChar, 32> parts;  // the longest decomposition in Unicode has 4
  UErrorCode error = U_ZERO_ERROR;
  const std::int32_t length = known_in(code, 12, 1)
                                  ? unorm2_getDecomposition(&nfd(), code, parts.data(),
                                                            static_cast<std::int32_t>(parts.size()), &error)
                                  : -1;
  if (length < 0 || U_FAILURE(error) != 0) {
    result += point;
    return;
  }
  for (std::int32_t at = 0; at < length;) {
    CodePoint part = 0;
    U16_NEXT(parts.data(), at, length, part);
    result += static_cast<char32_t>(part);
  }
}

}  // namespace

// ICU's macro narrows.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
CodePoint next_code_point(std::string_view text, std::size_t& at) {
  const auto first = static_cast<unsigned char>(text[at]);
  if (first < 0x80) {
    ++at;
    return first;
  }
  // ICU counts in 32 bits; no sequence is longer than four bytes.
  const auto length = static_cast<std::int32_t>(std::min<std::size_t>(text.size() - at, U8_MAX_LENGTH));
  const char* bytes = text.data() + at;
  std::int32_t used = 0;
  CodePoint point = 0;
  U8_NEXT(bytes, used, length, point);  // NOLINT(bugprone-inc-dec-in-conditions): ICU's macro
  at += static_cast<std::size_t>(used);
  return point < 0 ? ill_formed : point;
}
#pragma GCC diagnostic pop

void append_utf8(CodePoint point, std::string& text) {
  const auto append = [&](int lead, int shift) {
    text += static_cast<char>(lead | point >> shift);
    for (shift -= 6; shift >= 0; shift -= 6) text += static_cast<char>(0x80 | (point >> shift & 0x3F));
  };
  if (point < 0x80) {
    append(0, 0);
  } else if (point < 0x800) {
    append(0xC0, 6);
  } else if (point < 0x10000) {
    append(0xE0, 12);
  } else {
    append(0xF0, 18);
  }
}

CharacterClass class_of(CodePoint point) {
  if (point == ill_formed) return CharacterClass::other;
  if (is_space(point)) return CharacterClass::space;
  const std::uint32_t category = U_GET_GC_MASK(point);
  if ((category & (U_GC_L_MASK | U_GC_N_MASK)) == 0 || !known_in(point, 15, 0)) return CharacterClass::other;
  return (category & U_GC_L_MASK) != 0 ? CharacterClass::letter : CharacterClass::number;
}

bool is_space(CodePoint point) { return u_isUWhiteSpace(point) != 0; }

bool is_control(CodePoint point) {
  if (point == '\t' || point == '\n' || point == '\r') return false;
  const int category = category_of_unicode_8(point);
  return category == U_CONTROL_CHAR || category == U_FORMAT_CHAR || category == U_PRIVATE_USE_CHAR;
}

bool is_punctuation(CodePoint point) {
  if (point < 0x80) return point > ' ' && point < 0x7F && u_isalnum(point) == 0;  // symbols too
  return (U_MASK(category_of_unicode_8(point)) & U_GC_P_MASK) != 0;
}

bool is_chinese(CodePoint point) {
  // The blocks of BERT's tokenizer, including its 2B920 for Unicode's 2B820.
  static constexpr std::array<std::pair<CodePoint, CodePoint>, 8> blocks{{{0x4E00, 0x9FFF},
                                                                          {0x3400, 0x4DBF},
                                                                          {0x20000, 0x2A6DF},
                                                                          {0x2A700, 0x2B73F},
                                                                          {0x2B740, 0x2B81F},
                                                                          {0x2B920, 0x2CEAF},
                                                                          {0xF900, 0xFAFF},
                                                                          {0x2F800, 0x2FA1F}}};
  return std::any_of(blocks.begin(), blocks.end(),
                     [&](const auto& block) { return point >= block.first && point <= block.second; });
}

bool is_accent(CodePoint point) { return category_of_unicode_8(point) == U_NON_SPACING_MARK; }

std::u32string decomposed(std::u32string_view text) {
  std::u32string result;
  for (const char32_t point : text) append_decomposition(point, result);
  const auto is_starter = [](char32_t point) { return combining_class(point) == 0; };
  for (auto first = result.begin(); first != result.end();) {
    first = std::find_if_not(first, result.end(), is_starter);
    const auto last = std::find_if(first, result.end(), is_starter);
    std::stable_sort(first, last,
                     [](char32_t a, char32_t b) { return combining_class(a) < combining_class(b); });
    first = last;
  }
  return result;
}

void append_lower_case(CodePoint point, std::u32string& text) {
  if (point == 0x130) {  // the only character whose lower case has two
    text += U"i\u0307";
    return;
  }
  text += static_cast<char32_t>(known_in(point, 15, 0) ? u_tolower(point) : point);
}

}  // namespace stowage
