#include "tools/cli/tokens_options.h"

#include <fmt/format.h>

#include "stowage/error.h"

namespace stowage {
namespace {

const CLI::App* add_train(CLI::App& app, TokensTrainCommand& command) {
  CLI::App* train = app.add_subcommand("train", "Learns a byte-level byte-pair vocabulary");
  train->footer(
      "Writes vocab.json and merges.txt, as GPT-2 has them; <|endoftext|> is the last token, and where the\n"
      "text holds it, a border between documents.");
  train->add_option("TEXT", command.text_file, "the text to learn from")->required()->type_name("");
  train->add_option("--vocabulary", command.vocabulary_size, "how many tokens, at least 257")
      ->required()
      ->type_name("N");
  train->add_option("--output", command.output_folder, "where vocab.json and merges.txt go")
      ->required()
      ->type_name("FOLDER");
  return train;
}

void add_encode(CLI::App& app, TokensWords& words) {
  TokensEncodeCommand& command = words.encode;
  CLI::App* encode = app.add_subcommand("encode", "Writes a text as token ids, in llm.c's .bin format");
  encode->footer(
      "A tokenizer is a folder with tokenizer.json, vocab.json and merges.txt, or vocab.txt, one of these\n"
      "files, or the word bytes. Text that spells a special token, as <|endoftext|> does, is that token.");
  encode->add_option("TEXT", command.text_file, "the text")->required()->type_name("");
  encode->add_option("--tokenizer", command.tokenizer, "a folder, a file, or bytes")
      ->required()
      ->type_name("PLACE");
  encode->add_option("--output", command.output_file, "the shard to write")->required()->type_name("FILE");
  encode
      ->add_option("--shard-version", words.version,
                   "1: two bytes for each token, 7: four (what the ids need)")
      ->type_name("1|7");
}

}  // namespace

CLI::App* add_tokens(CLI::App& app, TokensWords& words) {
  CLI::App* tokens = app.add_subcommand("tokens", "Vocabularies, and texts as token ids");
  tokens->require_subcommand(1);
  words.train_app = add_train(*tokens, words.train);
  add_encode(*tokens, words);
  return tokens;
}

TokensEncodeCommand understand(const TokensWords& words) {
  TokensEncodeCommand command = words.encode;
  if (words.version == 0) return command;
  const auto version = static_cast<ShardVersion>(words.version);
  if (version != ShardVersion::two_bytes && version != ShardVersion::four_bytes)
    throw InvalidInput(fmt::format("--shard-version: {} is none that llm.c has; give 1 or 7", words.version));
  command.version = version;
  return command;
}

}  // namespace stowage
