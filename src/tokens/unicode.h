// Properties of Unicode for tokenizers, from ICU. Versions of Unicode are pinned, so that no result depends
// on ICU's version.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace stowage {

// A code point, or `ill_formed`.
using CodePoint = std::int32_t;
inline constexpr CodePoint ill_formed = -1;

// Returns the code point at `at`, and moves `at` behind it. Bytes that are no UTF-8 give `ill_formed`, one
// maximal part of a sequence at a time.
CodePoint next_code_point(std::string_view text, std::size_t& at);
void append_utf8(CodePoint point, std::string& text);

// Classes \p{L}, \p{N} and \s of GPT-2's pattern, in Unicode 15.0.
enum class CharacterClass : std::uint8_t { letter, number, space, other };
CharacterClass class_of(CodePoint point);

// Classes of BERT's tokenizer. They reproduce the general categories of Unicode 8.0 in `tokenizers`:
// characters assigned later have none.
bool is_space(CodePoint point);
bool is_control(CodePoint point);  // also for format and private-use characters; not for tab and line ends
bool is_punctuation(CodePoint point);
bool is_chinese(CodePoint point);
bool is_accent(CodePoint point);  // a nonspacing mark

// Returns the canonical decomposition (NFD of Unicode 12.1, as in `tokenizers`).
std::u32string decomposed(std::u32string_view text);
// Appends the full lower case of one character, regardless of its neighbours.
void append_lower_case(CodePoint point, std::u32string& text);

}  // namespace stowage
