// Long texts in parts that can be encoded one at a time.
#pragma once

#include <cstddef>
#include <string_view>

namespace stowage {

// Where the part of `text` that begins at `begin` may end: at the first border at least `least` bytes on, or
// at the text's end. Parts have together the ids of the whole: a border follows a line end between two
// characters that are no white space, where GPT-2's pieces and BERT's words end whatever stands around it.
// (An added token with such a line end within its text would be cut in two; no known tokenizer has one.)
std::size_t end_of_part(std::string_view text, std::size_t begin, std::size_t least);

}  // namespace stowage
