#include "src/tokens/gpt2_pieces.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "src/tokens/unicode.h"

namespace stowage {
namespace {

// Returns the length of the contraction that `rest` begins with; 0 if there is none.
std::size_t contraction(std::string_view rest) {
  static constexpr std::array<std::string_view, 7> endings{"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"};
  for (const std::string_view ending : endings) {
    if (rest.starts_with(ending)) return ending.size();
  }
  return 0;
}

// A run of characters of one class, with the beginning of its last character.
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

constexpr CodePoint first_stand_in = 0x100;

bool stands_for_itself(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xFF && byte != 0xAD);
}

std::array<CodePoint, 256> make_letter_points() {
  std::array<CodePoint, 256> points{};
  CodePoint next = first_stand_in;
  for (int byte = 0; byte < 256; ++byte)
    points[static_cast<std::size_t>(byte)] = stands_for_itself(byte) ? byte : next++;
  return points;
}

const std::array<CodePoint, 256>& letter_points() {
  static const std::array<CodePoint, 256> points = make_letter_points();
  return points;
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
  // White space of several characters leaves its last one to the word behind it.
  if (run.kind == CharacterClass::space && run.end < text.size() && run.last > begin) return run.last;
  return run.end;
}

const std::array<std::string, 256>& byte_letters() {
  static const std::array<std::string, 256> letters = [] {
    std::array<std::string, 256> made;
    for (std::size_t byte = 0; byte < made.size(); ++byte) append_utf8(letter_points()[byte], made[byte]);
    return made;
  }();
  return letters;
}

const std::array<std::uint8_t, 256>& bytes_by_letter() {
  static const std::array<std::uint8_t, 256> order = [] {
    std::array<std::uint8_t, 256> bytes;
    std::iota(bytes.begin(), bytes.end(), std::uint8_t{0});
    std::sort(bytes.begin(), bytes.end(),
              [](std::uint8_t a, std::uint8_t b) { return letter_points()[a] < letter_points()[b]; });
    return bytes;
  }();
  return order;
}

std::string spelled(std::string_view bytes) {
  std::string letters;
  for (const char byte : bytes) letters += byte_letters()[static_cast<unsigned char>(byte)];
  return letters;
}

std::optional<std::string> unspelled(std::string_view letters) {
  // The bytes whose letters are U+0100 and up.
  static const std::string stand_ins = [] {
    std::string bytes;
    for (int byte = 0; byte < 256; ++byte)
      if (!stands_for_itself(byte)) bytes += static_cast<char>(byte);
    return bytes;
  }();
  std::string bytes;
  for (std::size_t at = 0; at < letters.size();) {
    const CodePoint point = next_code_point(letters, at);
    if (point >= 0 && point < first_stand_in && stands_for_itself(point)) {
      bytes += static_cast<char>(point);
    } else if (point >= first_stand_in &&
               static_cast<std::size_t>(point - first_stand_in) < stand_ins.size()) {
      bytes += stand_ins[static_cast<std::size_t>(point - first_stand_in)];
    } else {
      return {};
    }
  }
  return bytes;
}

}  // namespace stowage
