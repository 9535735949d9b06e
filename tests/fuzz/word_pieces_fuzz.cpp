// BERT's vocab.txt.
#include "tests/fuzz/tokenizers.h"

namespace stowage::fuzz {

std::vector<std::string> seeds() {
  return {"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\nun\n##aff\n##able\n,\n中\né\n##é\n",
          "[UNK]\r\na\r\na\r\n\r\n##b \r\n"};
}
std::vector<std::string> dictionary() {
  return {"##", "[UNK]\n", "\n\n", "\xC2\x85", "\xE3\x80\x80", "\xCC\x81", std::string(1, '\0')};
}

}  // namespace stowage::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stowage;
  const std::string_view text = fuzz::text_of(data, size);
  WordPieceOptions options;
  options.lower_case = size % 2 == 0;
  options.clean_text = size % 3 != 0;
  const auto tokenizer = fuzz::parsed_or_refused([&] { return word_piece_tokenizer(text, options); });
  if (tokenizer) fuzz::check_tokenizer(**tokenizer, text, false);
  return 0;
}
