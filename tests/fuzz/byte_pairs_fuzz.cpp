// GPT-2's two files as one input: vocab.json, a line of three dashes, merges.txt. What is read gives each
// text back.
#include "tests/fuzz/tokenizers.h"

namespace stowage::fuzz {

constexpr std::string_view border = "\n---\n";

std::vector<std::string> seeds() {
  const BytePairVocabulary learned = train_byte_pairs("the cat and the other cat, then the hat", 262);
  const BytePairVocabulary bytes = train_byte_pairs("", 257);
  std::vector<std::string> texts;
  for (const BytePairVocabulary& vocabulary : {learned, bytes})
    texts.push_back(to_vocab_json(vocabulary) + std::string(border) + to_merges_text(vocabulary));
  return texts;
}

std::vector<std::string> dictionary() {
  return {"\"",    ":",        ",", "\"Ġt\":257", "\"<s>\":16777215", "\n", "\r\n", "h e\n",
          "Ġ t\n", "#version", " ", "Ġ",          "999999999999"};
}

}  // namespace stowage::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stowage;
  const std::string_view text = fuzz::text_of(data, size);
  const std::size_t at = std::min(text.find(fuzz::border), size);
  const std::string_view merges = text.substr(std::min(at + fuzz::border.size(), size));
  const auto tokenizer =
      fuzz::parsed_or_refused([&] { return byte_pair_tokenizer(text.substr(0, at), merges); });
  if (tokenizer) fuzz::check_tokenizer(**tokenizer, text, true);
  return 0;
}
