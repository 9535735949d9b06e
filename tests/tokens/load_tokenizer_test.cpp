#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/expect_refused.h"
#include "tests/support/printed_name.h"
#include "tests/support/temporary_folder.h"
#include "tests/tokens/fixtures.h"

namespace stowage {
namespace {

using Ids = std::vector<std::int32_t>;

// The ids that the package `tokenizers` gave; tests/fixtures/make_token_fixtures.py compares many more.
class LoadTokenizer : public ::testing::TestWithParam<std::string> {};

TEST_P(LoadTokenizer, GivesTheIdsOfTokenizers) {
  const std::string name = GetParam();
  const auto tokenizer = load_tokenizer(test::fixture(name));
  std::istringstream lines(test::fixture_text(name + "/samples.jsonl"));
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const auto sample = nlohmann::json::parse(line);
    EXPECT_EQ(tokenizer->encode(sample["text"].get<std::string>()), sample["ids"].get<Ids>()) << line;
  }
  EXPECT_EQ(count, 100);
}
INSTANTIATE_TEST_SUITE_P(Fixtures, LoadTokenizer,
                         ::testing::Values("gpt2", "gpt2_json", "bert", "bert_cased", "bert_json"),
                         stowage::test::printed_name);

TEST(LoadTokenizerFrom, AFile) {
  const Ids ids = load_tokenizer(test::fixture("gpt2"))->encode("the memory");
  EXPECT_EQ(load_tokenizer(test::fixture("gpt2/vocab.json"))->encode("the memory"), ids);
  EXPECT_EQ(load_tokenizer(test::fixture("gpt2/merges.txt"))->encode("the memory"), ids);
  EXPECT_EQ(load_tokenizer(test::fixture("gpt2_json/tokenizer.json"))->encode("the memory"), ids);
  const TemporaryFolder folder;
  const auto words = load_tokenizer(folder.make("other-vocab.txt", "[UNK]\nthe\n"));
  EXPECT_EQ(words->encode("THE cat"), (Ids{1, 0}));
}

TEST(LoadTokenizerFrom, AFolderWithSeveral) {
  const TemporaryFolder folder;
  folder.make("vocab.txt", "[UNK]\nthe\n");
  const auto path = std::filesystem::path(folder.file("vocab.txt")).parent_path().string();
  EXPECT_EQ(load_tokenizer(path)->vocabulary_size(), 2);
  folder.make("vocab.json", test::fixture_text("gpt2/vocab.json"));
  folder.make("merges.txt", test::fixture_text("gpt2/merges.txt"));
  EXPECT_EQ(load_tokenizer(path)->vocabulary_size(), 900);
  folder.make("tokenizer.json", test::fixture_text("gpt2_json/tokenizer.json"));
  EXPECT_EQ(load_tokenizer(path)->vocabulary_size(), 901);
}

TEST(LoadTokenizerFrom, OptionsBesideTheVocabulary) {
  const TemporaryFolder folder;
  const std::string vocab = folder.make("vocab.txt", "[UNK]\nThe\ne\né\n中文\n");
  EXPECT_EQ(load_tokenizer(vocab)->encode("The é 中文"), (Ids{0, 2, 0, 0}));
  folder.make(
      "tokenizer_config.json",
      R"({"do_lower_case": false, "strip_accents": null, "tokenize_chinese_chars": false, "other": 1})");
  EXPECT_EQ(load_tokenizer(vocab)->encode("The é 中文"), (Ids{1, 3, 4}));
  folder.make("tokenizer_config.json", R"({"do_lower_case": false, "strip_accents": true})");
  EXPECT_EQ(load_tokenizer(vocab)->encode("The é"), (Ids{1, 2}));
  folder.make("tokenizer_config.json", R"({"do_lower_case": "no"})");
  test::expect_refused([&] { load_tokenizer(vocab); },
                       "tokenizer_config.json: 'do_lower_case' is not true or false");
}

class AddedBesideTest : public ::testing::Test {
 protected:
  AddedBesideTest() {
    folder_.make("vocab.json", test::fixture_text("gpt2/vocab.json"));
    folder_.make("merges.txt", test::fixture_text("gpt2/merges.txt"));
  }
  std::unique_ptr<Tokenizer> load() const {
    return load_tokenizer(std::filesystem::path(folder_.file("vocab.json")).parent_path().string());
  }
  void expect_refused(const char* name, const std::string& text, const std::string& words) const {
    folder_.make(name, text);
    test::expect_refused([&] { load(); }, words);
  }
  TemporaryFolder folder_;
};

TEST_F(AddedBesideTest, TokensAreFoundAndExported) {
  const Ids before = load()->encode("a"), between = load()->encode("<|user|>");
  EXPECT_GT(between.size(), 1U);
  folder_.make("tokenizer_config.json", R"({"added_tokens_decoder": {
      "901": {"content": "<|bot|>", "normalized": true, "special": false},
      "900": {"content": "<|user|>", "lstrip": false, "normalized": false, "rstrip": false, "special": true}}})");
  const auto tokenizer = load();
  EXPECT_EQ(tokenizer->vocabulary_size(), 902);
  EXPECT_EQ(tokenizer->encode("<|user|>a<|bot|>"), (Ids{900, before.front(), 901}));
  EXPECT_EQ(tokenizer->decode(Ids{900, 901}), "<|user|><|bot|>");
  EXPECT_EQ(tokenizer_from_json(tokenizer->to_json({}))->encode("<|user|>a<|bot|>"),
            (Ids{900, before.front(), 901}));
  std::filesystem::remove(folder_.file("tokenizer_config.json"));
  folder_.make("added_tokens.json", R"({"<|bot|>": 901, "<|user|>": 900})");
  EXPECT_EQ(load()->encode("<|user|>a<|bot|>"), (Ids{900, before.front(), 901}));
}

TEST_F(AddedBesideTest, RefuseWhatWouldChangeIds) {
  const char* const config = "tokenizer_config.json";
  expect_refused(config, R"({"add_prefix_space": true})",
                 "tokenizer_config.json: 'add_prefix_space' is not false");
  expect_refused(config, R"({"added_tokens_decoder": {"901": {"content": "x y"}}})",
                 "it gives 'x y' the id 901, and the vocabulary goes on at 900");
  expect_refused(config, R"({"added_tokens_decoder": {"1": {"content": "\u0120"}}})", "gives");
  expect_refused(config, R"({"added_tokens_decoder": {"900": {"content": "x y", "lstrip": true}}})",
                 "'added_tokens_decoder.900.lstrip' is not false");
  expect_refused(config, R"({"added_tokens_decoder": {"nine": {"content": "x y"}}})",
                 "\"nine\" in the place of an id");
  expect_refused(config, R"({"added_tokens_decoder": {"900": {"content": ""}}})", "a text with characters");
}

TEST_F(AddedBesideTest, NamedTokensAreSpecialWhereTheyHaveAnId) {
  folder_.make("added_tokens.json", R"({"Foo": 900})");
  folder_.make("special_tokens_map.json",
               R"({"eos_token": {"content": "Foo"}, "pad_token": "the", "unk_token": null,
                                              "additional_special_tokens": ["<|endoftext|>"]})");
  const auto special = load();
  EXPECT_EQ(special->encode("Foo").front(), 900);
  EXPECT_EQ(special->encode("xthe"), (Ids{special->encode("x").front(), special->encode("the").front()}));
  expect_refused("special_tokens_map.json", R"({"pad_token": "[PAD]"})",
                 "special_tokens_map.json: 'pad_token' is '[PAD]', which has no id");
}

TEST_F(AddedBesideTest, OfAWholeTokenizerTheSettingsAgree) {
  std::filesystem::remove(folder_.file("vocab.json"));
  folder_.make("tokenizer.json", test::fixture_text("bert_json/tokenizer.json"));
  const auto load_json = [&] { return load_tokenizer(folder_.file("tokenizer.json")); };
  EXPECT_NO_THROW(load_json());
  const char* const config = "tokenizer_config.json";
  const auto expect_told = [&](const char* text, const char* words) {
    folder_.make(config, text);
    test::expect_refused(load_json, words);
  };
  expect_told(R"({"tokenize_chinese_chars": false, "strip_accents": false, "do_lower_case": false})",
              "tokenizer_config.json: 'do_lower_case' is false there, and");
  expect_told(R"({"tokenize_chinese_chars": false})", "'strip_accents' is true there");  // by BERT's defaults
  folder_.make(config, R"({"tokenizer_class": "PreTrainedTokenizerFast"})");
  EXPECT_NO_THROW(load_json());
  folder_.make(config, R"({"tokenize_chinese_chars": false, "strip_accents": false})");
  EXPECT_NO_THROW(load_json());
}

// Folders that transformers made the ids of (tests/fixtures/check_token_folders.py).
TEST(TokenFolders, HaveTheIdsOfTransformersOrAreRefused) {
  int folders = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(STOWAGE_ROOT "/tests/fixtures/token_folders")) {
    SCOPED_TRACE(entry.path());
    std::ifstream file(entry.path() / "right.json");
    const auto right = nlohmann::json::parse(file);
    ++folders;
    if (right.contains("refused")) {
      test::expect_refused([&] { load_tokenizer(entry.path().string()); },
                           right["refused"].get<std::string>());
      continue;
    }
    const auto tokenizer = load_tokenizer(entry.path().string());
    const auto exported = tokenizer_from_json(tokenizer->to_json({}));
    for (std::size_t i = 0; i < right["texts"].size(); ++i) {
      const auto text = right["texts"][i].get<std::string>();
      EXPECT_EQ(tokenizer->encode(text), right["ids"][i].get<Ids>()) << text;
      EXPECT_EQ(exported->encode(text), right["ids"][i].get<Ids>()) << text;
    }
  }
  EXPECT_EQ(folders, 8);
}

TEST(LoadTokenizerFrom, NamesThePathThatIsWrong) {
  const TemporaryFolder folder;
  const auto path = std::filesystem::path(folder.file("x")).parent_path().string();
  test::expect_refused([&] { load_tokenizer(path); },
                       "'" + path + "' holds no tokenizer; give a folder with");
  test::expect_refused([&] { load_tokenizer(folder.file("none.json")); }, "none.json': No such file");
  test::expect_refused([&] { load_tokenizer(folder.make("x.bin", "x")); }, "x.bin' is no tokenizer's file");
  folder.make("vocab.json", test::fixture_text("gpt2/vocab.json"));
  test::expect_refused([&] { load_tokenizer(path); }, "merges.txt': No such file");
  folder.make("merges.txt", "a\n");
  test::expect_refused([&] { load_tokenizer(path); }, path + "/merges.txt: line 1 is not two tokens");
}

}  // namespace
}  // namespace stowage
