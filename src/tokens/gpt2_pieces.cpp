#include "src/tokens/gpt2_pieces.h"

#include <array>

#include "src/tokens/unicode.h"

namespace stowage {
namespace {

// The length of the contraction that `rest` begins with; 0 where there is none.
std::size_t contraction(std::string_view rest) {
  static constexpr std::array<std::string_view, 7> endings{"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"};
  for (const std::string_view ending : endings) {
    if (rest.starts_with(ending)) return ending.size();
  }
  return 0;
}

// Where the run of characters of one class that begins at `begin` ends, and where its last character begins.
struct Run {
  CharacterClass kind = CharacterClass::other;
  std::size_t last = 0;
  std::size_t end = 0;
};

Run run_at(std::string_view text, std::size_t begin) {
  std::size_t at = begin;
  Run run{class_of(next_code_point(text, at)), begin, at};
  while (at < text.size()) {
    const std::size_t here = at;
    if (class_of(next_code_point(text, at)) != run.kind) break;
    run.last = here;
    run.end = at;
  }
  return run;
}

}  // namespace

std::size_t end_of_piece(std::string_view text, std::size_t begin) {
  if (const std::size_t length = contraction(text.substr(begin)); length != 0) return begin + length;
  const bool led_by_space = text[begin] == ' ' && begin + 1 < text.size();
  if (led_by_space) {
    const Run run = run_at(text, begin + 1);
    if (run.kind != CharacterClass::space) return run.end;
  }
  const Run run = run_at(text, begin);
  // White space before a word leaves its last character to the word, if there is more of it.
  if (run.kind == CharacterClass::space && run.end < text.size() && run.last > begin) return run.last;
  return run.end;
}

}  // namespace stowage
