#include "src/tokens/tokenizer_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/expect_refused.h"
#include "tests/tokens/fixtures.h"

namespace stowage {
namespace {

using Ids = std::vector<std::int32_t>;
using Json = nlohmann::json;

class TokenizerJsonTest : public ::testing::Test {
 protected:
  // What `path` (a JSON pointer) becomes in `text`, and how that is refused.
  static void expect_refused(const Json& text, const char* path, const Json& value,
                             const std::string& words) {
    Json changed = text;
    changed[Json::json_pointer(path)] = value;
    test::expect_refused([&] { tokenizer_from_json(changed.dump()); }, "tokenizer.json: " + words);
  }
  Json pairs_ = Json::parse(test::fixture_text("gpt2_json/tokenizer.json"));
  Json words_ = Json::parse(test::fixture_text("bert_json/tokenizer.json"));
};

TEST_F(TokenizerJsonTest, BytePairs) {
  const auto tokenizer = tokenizer_from_json(pairs_.dump());
  const auto files =
      byte_pair_tokenizer(test::fixture_text("gpt2/vocab.json"), test::fixture_text("gpt2/merges.txt"));
  EXPECT_EQ(tokenizer->encode("planning, isn't it? 你好"), files->encode("planning, isn't it? 你好"));
  EXPECT_EQ(tokenizer->encode("<|added|>"), Ids{files->vocabulary_size()});
  EXPECT_EQ(tokenizer->special(SpecialToken::end_of_text), 0);
}

TEST_F(TokenizerJsonTest, MergesOfBothSpellings) {
  Json other = pairs_;
  for (Json& merge : other["model"]["merges"]) {
    if (merge.is_array()) {
      merge = merge[0].get<std::string>() + ' ' + merge[1].get<std::string>();
    } else {
      const auto text = merge.get<std::string>();
      merge = Json::array({text.substr(0, text.find(' ')), text.substr(text.find(' ') + 1)});
    }
  }
  EXPECT_EQ(tokenizer_from_json(other.dump())->encode("planning memory"),
            tokenizer_from_json(pairs_.dump())->encode("planning memory"));
}

// As models after GPT-2 write them.
TEST_F(TokenizerJsonTest, SplitByGpt2sPatternAndAnEmptySequence) {
  Json other = pairs_;
  other["normalizer"] = {{"type", "Sequence"}, {"normalizers", Json::array()}};
  const Json split = {
      {"type", "Split"},
      {"pattern",
       {{"Regex", R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"}}},
      {"behavior", "Isolated"},
      {"invert", false}};
  const Json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  other["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {split, bytes}}};
  const char* const text = "planning, isn't it?  12 你好\n\n x";
  EXPECT_EQ(tokenizer_from_json(other.dump())->encode(text),
            tokenizer_from_json(pairs_.dump())->encode(text));
  expect_refused(other, "/pre_tokenizer/pretokenizers/0/pattern/Regex", "\\s+",
                 "'pre_tokenizer.pretokenizers[0].pattern'");
  expect_refused(other, "/pre_tokenizer/pretokenizers/0/behavior", "Removed",
                 "'pre_tokenizer.pretokenizers[0].behavior' is not Isolated");
  expect_refused(other, "/pre_tokenizer/pretokenizers/1/use_regex", true,
                 "'pre_tokenizer.pretokenizers[1].use_regex' is not false");
  expect_refused(other, "/pre_tokenizer/pretokenizers", Json::array(), "'pre_tokenizer' is not ByteLevel");
}

TEST_F(TokenizerJsonTest, OptionsOfWordPieces) {
  Json other = words_;
  other["normalizer"]["lowercase"] = false;
  other["normalizer"]["handle_chinese_chars"] = true;
  other["model"]["max_input_chars_per_word"] = 3;
  const auto tokenizer = tokenizer_from_json(other.dump());
  const Ids unknown{*tokenizer->special(SpecialToken::unknown)};
  EXPECT_NE(tokenizer->encode("the"), unknown);
  EXPECT_EQ(tokenizer->encode("then"), unknown);
  EXPECT_NE(tokenizer->encode("THE"), tokenizer->encode("the"));
  EXPECT_EQ(tokenizer->encode("中文").size(), 2U);
  EXPECT_EQ(tokenizer_from_json(words_.dump())->encode("THE"), tokenizer->encode("the"));
}

TEST_F(TokenizerJsonTest, NamesTheFieldOfBytePairsThatItDoesNotKnow) {
  const std::string alone = ", which is all that is read here";
  expect_refused(pairs_, "/normalizer", {{"type", "NFC"}}, "'normalizer' is not null" + alone);
  expect_refused(pairs_, "/pre_tokenizer/type", "Whitespace",
                 "'pre_tokenizer.type' is not ByteLevel" + alone);
  expect_refused(pairs_, "/pre_tokenizer", nullptr, "'pre_tokenizer.type' is not there");
  expect_refused(pairs_, "/pre_tokenizer/add_prefix_space", true,
                 "'pre_tokenizer.add_prefix_space' is not false" + alone);
  expect_refused(pairs_, "/pre_tokenizer/use_regex", false, "'pre_tokenizer.use_regex' is not true" + alone);
  expect_refused(pairs_, "/normalizer", Json{{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}}}},
                 "'normalizer' is not null" + alone);
  expect_refused(pairs_, "/model/type", "Unigram", "'model.type' is not BPE or WordPiece" + alone);
  expect_refused(pairs_, "/model/dropout", 0.1, "'model.dropout' is not null" + alone);
  expect_refused(pairs_, "/model/unk_token", "<unk>", "'model.unk_token' is not null or empty" + alone);
  expect_refused(pairs_, "/model/end_of_word_suffix", "</w>",
                 "'model.end_of_word_suffix' is not null or empty" + alone);
  expect_refused(pairs_, "/model/byte_fallback", true, "'model.byte_fallback' is not false" + alone);
  expect_refused(pairs_, "/model/ignore_merges", true, "'model.ignore_merges' is not false" + alone);
  expect_refused(pairs_, "/added_tokens/1/lstrip", true, "'added_tokens[1].lstrip' is not false" + alone);
  expect_refused(pairs_, "/added_tokens/1/single_word", true,
                 "'added_tokens[1].single_word' is not false" + alone);
}

// Files saved after encoding with truncation=True or padding=True hold these; ids of whole texts stay.
TEST_F(TokenizerJsonTest, PassesOverTruncationAndPadding) {
  const Ids ids = tokenizer_from_json(pairs_.dump())->encode("the cat the cat");
  pairs_["truncation"] = {{"max_length", 1}, {"strategy", "LongestFirst"}, {"stride", 0}};
  pairs_["padding"] = {{"strategy", {{"Fixed", 100}}}, {"pad_id", 0}, {"pad_token", "<pad>"}};
  EXPECT_GT(ids.size(), 1U);
  EXPECT_EQ(tokenizer_from_json(pairs_.dump())->encode("the cat the cat"), ids);
}

// As the package does: text between tokens without `normalized` is searched for tokens that have it.
TEST_F(TokenizerJsonTest, FindsNormalizedTokensBetweenTheOthers) {
  const auto list = [](bool first_late, bool second_late) {
    return Json::array({{{"content", "<|added|>"}, {"id", 900}, {"normalized", first_late}},
                        {{"content", "x<|added"}, {"id", 901}, {"normalized", second_late}}});
  };
  const auto encode = [&](bool first_late, bool second_late) {
    Json json = pairs_;
    json["added_tokens"] = list(first_late, second_late);
    return tokenizer_from_json(json.dump())->encode("x<|added|>");
  };
  EXPECT_EQ(encode(false, true), (Ids{88, 900}));
  for (const auto& [first, second] : {std::pair(false, false), std::pair(true, false), std::pair(true, true)})
    EXPECT_EQ(encode(first, second), (Ids{901, 92, 30}));  // the leftmost one
}

TEST_F(TokenizerJsonTest, NamesTheFieldOfBytePairsThatIsWrong) {
  expect_refused(pairs_, "", Json::array(), "'model' is not there");
  expect_refused(pairs_, "/model/vocab/the", "1", "'model.vocab.the' is not an integer");
  expect_refused(pairs_, "/model/merges/3", 7, "'model.merges[3]' is not a list");
  expect_refused(pairs_, "/model/merges/3", {"a"}, "'model.merges[3]' is not a pair");
  expect_refused(pairs_, "/model/merges/3", "a b c", "'model.merges[3]' is not two tokens");
  expect_refused(pairs_, "/model/merges/3", "zz qq", "'model.merges[3]': 'zz' is no token");
  expect_refused(pairs_, "/added_tokens/0/content", "", "'added_tokens[0].content' is not a text");
  expect_refused(pairs_, "/added_tokens/0/id", 5, "'added_tokens' gives '<|endoftext|>' the id 5");
  test::expect_refused([] { tokenizer_from_json("[[["); }, "tokenizer.json: ");
}

TEST_F(TokenizerJsonTest, NamesTheFieldOfWordPiecesThatIsWrong) {
  expect_refused(words_, "/normalizer/type", "NFD", "'normalizer.type' is not BertNormalizer");
  expect_refused(words_, "/normalizer/clean_text", 1, "'normalizer.clean_text' is not true or false");
  expect_refused(words_, "/pre_tokenizer/type", "Whitespace", "'pre_tokenizer.type' is not BertPreTokenizer");
  expect_refused(words_, "/model/unk_token", "<none>", "'model.unk_token' is not a token of the vocabulary");
  expect_refused(words_, "/model/vocab/the", 0, "'model.vocab' gives the id 0 to two tokens");
  expect_refused(words_, "/model/max_input_chars_per_word", -1,
                 "'model.max_input_chars_per_word' is not a count");
}

}  // namespace
}  // namespace stowage
