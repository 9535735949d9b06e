// What tokenizers ask of Unicode, answered by ICU. Versions are pinned, so that no answer depends on which
// ICU is there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace stowage {

// A code point, or `ill_formed`.
using CodePoint = std::int32_t;
inline constexpr CodePoint ill_formed = -1;

// The code point at `at`, which moves behind it. Of bytes that are no UTF-8, one maximal part of a sequence
// at a time.
CodePoint next_code_point(std::string_view text, std::size_t& at);
void append_utf8(CodePoint point, std::string& text);

// As \p{L}, \p{N} and \s in GPT-2's pattern see characters, in Unicode 15.0.
enum class CharacterClass : std::uint8_t { letter, number, space, other };
CharacterClass class_of(CodePoint point);

// As BERT's tokenizer sees them. `tokenizers` has general categories as of Unicode 8.0, which are reproduced:
// what was assigned later has none.
bool is_space(CodePoint point);
bool is_control(CodePoint point);  // or format or private use; not tab and line ends
bool is_punctuation(CodePoint point);
bool is_chinese(CodePoint point);
bool is_accent(CodePoint point);  // a nonspacing mark

// Canonical decomposition (NFD of Unicode 12.1, as `tokenizers` has it).
std::u32string decomposed(std::u32string_view text);
// The full lower case of one character, whatever stands beside it.
void append_lower_case(CodePoint point, std::u32string& text);

}  // namespace stowage
