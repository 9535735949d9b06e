// Vocabularies under tests/fixtures/tokens, and one for tests that need no file.
#pragma once

#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "stowage/tokenizer.h"

namespace stowage::test {

inline std::string fixture(const std::string& name) {
  return std::string(STOWAGE_ROOT) + "/tests/fixtures/tokens/" + name;
}

inline std::string fixture_text(const std::string& name) {
  std::ifstream file(fixture(name), std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The bytes, some merges of English, and <|endoftext|> as id 264.
inline BytePairVocabulary small_vocabulary() {
  return train_byte_pairs(
      "the cat and the other cat then sat on the other mat; the hat is there, isn't it? they're in the inn",
      265);
}

}  // namespace stowage::test
