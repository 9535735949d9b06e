#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
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
