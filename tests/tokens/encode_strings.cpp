// encode_strings TOKENIZER < STRINGS: for tests/fixtures/make_token_fixtures.py, which compares tokenizers.
// STRINGS is any number of strings, each with its length before it as four little-endian bytes; for each one
// the ids come out in a line, and in the next line the bytes that they decode to, in hexadecimal digits.
#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>

#include "stowage/error.h"
#include "stowage/tokenizer.h"

namespace {

std::string standard_input() {
  std::string all;
  std::array<char, 1 << 16> block;
  while (const std::size_t count = std::fread(block.data(), 1, block.size(), stdin))
    all.append(block.data(), count);
  return all;
}

void encode_all(const stowage::Tokenizer& tokenizer, std::string_view strings) {
  while (!strings.empty()) {
    std::uint32_t length = 0;
    if (strings.size() < sizeof length)
      throw stowage::InvalidInput("a length is cut short; give whole strings");
    std::memcpy(&length, strings.data(), sizeof length);
    strings.remove_prefix(sizeof length);
    if (strings.size() < length) throw stowage::InvalidInput("a string is cut short; give whole strings");
    const auto ids = tokenizer.encode(strings.substr(0, length));
    strings.remove_prefix(length);
    std::string line = fmt::format("{}\n", fmt::join(ids, " "));
    for (const char byte : tokenizer.decode(ids))
      line += fmt::format("{:02x}", static_cast<unsigned char>(byte));
    line += '\n';
    std::fwrite(line.data(), 1, line.size(), stdout);
  }
}

}  // namespace

int main(int count, char** arguments) {
  try {
    if (count != 2) throw stowage::InvalidInput("usage: encode_strings TOKENIZER < STRINGS");
    encode_all(*stowage::load_tokenizer(arguments[1]), standard_input());
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "encode_strings: %s\n", error.what());
    return 2;
  }
}
