// tokenizer.json of both kinds.
#include <nlohmann/json.hpp>

#include "tests/fuzz/tokenizers.h"

namespace stowage::fuzz {
namespace {

using Json = nlohmann::ordered_json;

Json added(const char* text, int id) {
  return {{"id", id},        {"content", text},     {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", true}};
}

std::string byte_pairs() {
  const BytePairVocabulary vocabulary = train_byte_pairs("the cat then the hat", 260);
  const Json json{
      {"version", "1.0"},
      {"added_tokens", {added("<|endoftext|>", 259), added("<new>", 260)}},
      {"normalizer", nullptr},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"vocab", Json::parse(to_vocab_json(vocabulary))},
        {"merges", Json::array({Json::array({"h", "e"}), "t he"})}}}};
  return json.dump();
}

std::string word_pieces() {
  const Json json{
      {"added_tokens", {added("[UNK]", 0)}},
      {"normalizer", {{"type", "BertNormalizer"}, {"strip_accents", nullptr}, {"lowercase", true}}},
      {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
      {"model",
       {{"type", "WordPiece"},
        {"unk_token", "[UNK]"},
        {"continuing_subword_prefix", "##"},
        {"max_input_chars_per_word", 100},
        {"vocab", {{"[UNK]", 0}, {"t", 1}, {"##y", 2}, {"type", 3}, {"\"", 4}}}}}};
  return json.dump();
}

}  // namespace

std::vector<std::string> seeds() { return {byte_pairs(), word_pieces()}; }
std::vector<std::string> dictionary() {
  return {
      "null",    "true",          "false", "\"\"", "[]", "{}", "-1", "16777216", "\"##\"", "\"lstrip\":true",
      "\"the\"", "[\"t\",\"h\"]", ","};
}

}  // namespace stowage::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stowage;
  const std::string_view text = fuzz::text_of(data, size);
  const auto tokenizer = fuzz::parsed_or_refused([&] { return tokenizer_from_json(text); });
  if (!tokenizer) return 0;
  // Of byte pairs there are at least the bytes; WordPiece with so many tokens is not made by few changes.
  const bool byte_level =
      (*tokenizer)->vocabulary_size() >= 256 && text.find("ByteLevel") != std::string_view::npos;
  fuzz::check_tokenizer(**tokenizer, text, byte_level);
  return 0;
}
