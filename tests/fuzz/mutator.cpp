#include "tests/fuzz/mutator.h"

#include <algorithm>
#include <array>
#include <random>
#include <utility>

namespace stowage::fuzz {
namespace {

constexpr std::array numbers{"0",
                             "1",
                             "-1",
                             "2",
                             "7",
                             "0.5",
                             "-0.0",
                             "1e308",
                             "1e999",
                             "5e-324",
                             "127",
                             "255",
                             "256",
                             "65535",
                             "65536",
                             "2147483647",
                             "2147483648",
                             "4294967294",
                             "4294967295",
                             "4294967296",
                             "9007199254740993",
                             "1152921504606846976",
                             "4611686018427387904",
                             "9223372036854775807",
                             "9223372036854775808",
                             "-9223372036854775808",
                             "18446744073709551615",
                             "18446744073709551616",
                             "00",
                             "1.0",
                             "NaN"};
constexpr std::array bytes{'\0', '\x01', '\x7f', '\x80', '\xc3', '\xff', '"', '\\', '\n', '\r', ',',
                           ':',  '{',    '}',    '[',    ']',    '-',    '0', ' ',  'e',  '.',  'x'};

struct Piece {
  std::size_t at = 0;
  std::size_t size = 0;
};

// The random numbers and the text of one input.
class Change {
 public:
  Change(std::string text, std::uint64_t seed, const std::vector<std::string>& dictionary)
      : text_(std::move(text)), random_(seed), dictionary_(dictionary) {}

  std::size_t below(std::size_t limit) {
    return limit == 0 ? 0 : static_cast<std::size_t>(random_() % limit);
  }
  std::string take() && { return std::move(text_); }

  // A `gentle` change leaves most texts well formed, so that what stands behind the first check is reached.
  void one(const std::string& other, bool gentle) {
    constexpr std::size_t first_gentle = 6;
    constexpr std::size_t kinds = 15;
    switch (gentle ? first_gentle + below(kinds - 1 - first_gentle) : below(kinds)) {
      case 0:
        return flip_bit();
      case 1:
        return set_byte();
      case 2:
        return erase(any_piece());
      case 3:
        return insert(text_.substr(0, below(text_.size() + 1)).substr(0, 64));
      case 4:
        return text_.resize(below(text_.size() + 1));
      case 5:
        return splice(other);
      case 6:
      case 7:
      case 8:
      case 9:
        return replace_number();
      case 10:
      case 11:
      case 12:
        return exchange_quoted();
      case 13:
        return replace_line();
      default:
        return below(2) == 0 ? duplicate() : insert(word());
    }
  }

 private:
  std::string text_;
  std::mt19937_64 random_;
  const std::vector<std::string>& dictionary_;

  Piece any_piece() {
    const std::size_t at = below(text_.size() + 1);
    return {at, below(std::min<std::size_t>(text_.size() - at, 64) + 1)};
  }

  void flip_bit() {
    if (text_.empty()) return;
    char& byte = text_[below(text_.size())];
    byte = static_cast<char>(static_cast<unsigned char>(byte) ^ (1U << below(8)));
  }
  void set_byte() {
    if (!text_.empty()) text_[below(text_.size())] = bytes[below(bytes.size())];
  }
  void erase(Piece piece) { text_.erase(piece.at, piece.size); }
  void insert(const std::string& piece) { text_.insert(below(text_.size() + 1), piece); }
  void duplicate() {
    const Piece piece = any_piece();
    const std::string copy = text_.substr(piece.at, piece.size);
    text_.insert(piece.at, copy);
  }
  // The beginning of this text, the end of the other.
  void splice(const std::string& other) {
    text_ = text_.substr(0, below(text_.size() + 1)) + other.substr(below(other.size() + 1));
  }
  std::string word() {
    if (dictionary_.empty() || below(4) == 0) return numbers[below(numbers.size())];
    return dictionary_[below(dictionary_.size())];
  }

  // The pieces of the text that `next(at)` finds, each from `at` on; size 0: no more.
  template <class Next>
  Piece one_of(Next&& next) {
    std::vector<Piece> found;
    for (Piece piece = next(0); piece.size > 0; piece = next(piece.at + piece.size)) found.push_back(piece);
    return found.empty() ? Piece{} : found[below(found.size())];
  }

  void replace(Piece piece, const std::string& with) {
    if (piece.size > 0) text_.replace(piece.at, piece.size, with);
  }

  void replace_number() {
    const Piece number = one_of([&](std::size_t from) {
      const std::size_t at = text_.find_first_of("0123456789", from);
      if (at == std::string::npos) return Piece{};
      const std::size_t end = text_.find_first_not_of("0123456789.eE+-", at);
      return Piece{at, std::min(end, text_.size()) - at};
    });
    if (number.size == 0) return;
    std::string with =
        below(3) == 0 ? near(text_.substr(number.at, number.size)) : numbers[below(numbers.size())];
    replace(number, with);
  }

  // One digit changed.
  std::string near(std::string number) {
    number[below(number.size())] = static_cast<char>('0' + below(10));
    return number;
  }

  Piece quoted() {
    return one_of([&](std::size_t from) {
      const std::size_t at = text_.find('"', from);
      const std::size_t end = at == std::string::npos ? at : text_.find('"', at + 1);
      return end == std::string::npos ? Piece{} : Piece{at, end + 1 - at};
    });
  }
  void exchange_quoted() {
    const Piece from = quoted();
    const Piece to = quoted();
    const std::string with = below(4) == 0 ? '"' + word() + '"' : text_.substr(from.at, from.size);
    replace(to, with);
  }

  // By another line, by two, or by none.
  void replace_line() {
    const auto next = [&](std::size_t from) {
      if (from >= text_.size()) return Piece{};
      const std::size_t end = text_.find('\n', from);
      return Piece{from, (end == std::string::npos ? text_.size() : end + 1) - from};
    };
    const Piece from = one_of(next);
    const Piece to = one_of(next);
    const std::string with = text_.substr(from.at, from.size);
    const std::string old = text_.substr(to.at, to.size);
    const std::size_t how = below(3);
    replace(to, how == 0 ? with : how == 1 ? with + old : std::string());
  }
};

}  // namespace

Mutator::Mutator(std::vector<std::string> seeds, std::vector<std::string> dictionary, std::uint64_t seed)
    : seeds_(std::move(seeds)), dictionary_(std::move(dictionary)), seed_(seed) {
  for (const std::string& text : seeds_) longest_ = std::max(longest_, text.size());
}

std::string Mutator::input(std::uint64_t run) const {
  std::mt19937_64 random(seed_ * 0x9e3779b97f4a7c15U + run);
  const std::string& base = seeds_[random() % seeds_.size()];
  const std::uint64_t changes = 1 + random() % 4;
  const bool gentle = random() % 4 != 0;
  Change change(base, random(), dictionary_);
  for (std::uint64_t i = 0; i < changes; ++i) change.one(seeds_[random() % seeds_.size()], gentle);
  std::string text = std::move(change).take();
  if (text.size() > 2 * longest_) text.resize(2 * longest_);
  return text;
}

}  // namespace stowage::fuzz
