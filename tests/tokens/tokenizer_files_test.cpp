#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/tokens/fixtures.h"

namespace stowage {
namespace {

using Json = nlohmann::json;

const std::vector<std::string> texts = {"planning, isn't it? 你好 THE café",
                                        "<|endoftext|><|added|>[MASK] [CLS]", "\t two\n\nlines 1234",
                                        "\xff\xfe", ""};

void expect_same_ids(const Tokenizer& before) {
  const auto after = tokenizer_from_json(before.to_json({}));
  EXPECT_EQ(after->to_json({}), before.to_json({}));
  for (const std::string& text : texts) {
    EXPECT_EQ(after->encode(text), before.encode(text)) << text;
    EXPECT_EQ(after->encode(text, SpecialText::ordinary), before.encode(text, SpecialText::ordinary)) << text;
  }
}

TEST(TokenizerFiles, ATokenizerThatIsWrittenAndReadGivesTheSameIds) {
  for (const char* name : {"gpt2", "gpt2_json", "bert", "bert_cased", "bert_json"}) {
    SCOPED_TRACE(name);
    expect_same_ids(*load_tokenizer(test::fixture(name)));
  }
  expect_same_ids(*byte_pair_tokenizer(test::small_vocabulary()));
}

TEST(TokenizerFiles, BytesAreBytePairsWithoutAMerge) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  const auto bytes = byte_tokenizer();
  EXPECT_EQ(tokenizer_from_json(bytes->to_json({}))->encode(all), bytes->encode(all));
}

TEST(TokenizerFiles, TokensThatTheVocabularyLacksAreFoundAtTheirIds) {
  const auto before = byte_pair_tokenizer(test::small_vocabulary());
  const std::vector<MissingToken> missing = {
      {SpecialToken::classification, 265}, {SpecialToken::separator, 266}, {SpecialToken::mask, 268}};
  const auto after = tokenizer_from_json(before->to_json(missing));
  EXPECT_EQ(after->encode("[CLS][SEP][MASK]"), (std::vector<std::int32_t>{265, 266, 268}));
  EXPECT_EQ(after->encode("the other cat"), before->encode("the other cat"));
  EXPECT_EQ(after->vocabulary_size(), 269);
  EXPECT_EQ(before->special(SpecialToken::mask), std::nullopt);
  EXPECT_EQ(after->special(SpecialToken::mask), 268);
}

TEST(TokenizerFiles, FramesATextWhereBothTokensAreThere) {
  const auto words = load_tokenizer(test::fixture("bert"));
  const Json framed = Json::parse(words->to_json({}))["post_processor"];
  EXPECT_EQ(framed["type"], "TemplateProcessing");
  EXPECT_EQ(framed["single"][0]["SpecialToken"]["id"], "[CLS]");
  EXPECT_EQ(framed["special_tokens"]["[SEP]"]["ids"],
            Json::array({*words->special(SpecialToken::separator)}));
  const auto pairs = byte_pair_tokenizer(test::small_vocabulary());
  EXPECT_TRUE(Json::parse(pairs->to_json({}))["post_processor"].is_null());
  const std::vector<MissingToken> half = {{SpecialToken::classification, 265}};
  EXPECT_TRUE(Json::parse(pairs->to_json(half))["post_processor"].is_null());
}

TEST(TokenizerFiles, FramesNothingForAModelThatTakesTheTextAlone) {
  const auto words = load_tokenizer(test::fixture("bert"));
  EXPECT_TRUE(Json::parse(words->to_json({}, Framing::none))["post_processor"].is_null());
}

// GPT-2 adds token types to its embeddings as if they were tokens; BERT needs them for the second text.
TEST(TokenizerFiles, NamesTheInputsThatTheModelTakes) {
  const auto inputs = [](Framing framing) {
    const auto files = tokenizer_files(*load_tokenizer(test::fixture("bert")), {}, 8, framing);
    return Json::parse(files.at("tokenizer_config.json"))["model_input_names"];
  };
  EXPECT_EQ(inputs(Framing::none), (Json{"input_ids", "attention_mask"}));
  EXPECT_EQ(inputs(Framing::pairs), (Json{"input_ids", "token_type_ids", "attention_mask"}));
}

TEST(TokenizerFiles, NamesTheSpecialTokensThatAreThere) {
  const std::vector<MissingToken> missing = {{SpecialToken::mask, 265}};
  const auto files =
      tokenizer_files(*byte_pair_tokenizer(test::small_vocabulary()), missing, 77, Framing::pairs);
  const Json configuration = Json::parse(files.at("tokenizer_config.json"));
  EXPECT_EQ(configuration["model_max_length"], 77);
  EXPECT_EQ(configuration["eos_token"], "<|endoftext|>");
  EXPECT_EQ(configuration["mask_token"], "[MASK]");
  EXPECT_FALSE(configuration.contains("unk_token"));
  EXPECT_EQ(tokenizer_from_json(files.at("tokenizer.json"))->encode("[MASK]").front(), 265);
}

}  // namespace
}  // namespace stowage
