#include "tools/cli/tokens_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>

#include "src/base/output_file.h"
#include "src/tokens/mapped_file.h"
#include "src/tokens/text_parts.h"
#include "stowage/error.h"
#include "stowage/tokenizer.h"
#include "tools/console/text.h"

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

void add_encode(CLI::App& app, RawTokensOptions& raw) {
  TokensEncodeCommand& command = raw.encode;
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
      ->add_option("--shard-version", raw.version, "1: two bytes for each token, 7: four (what the ids need)")
      ->type_name("1|7");
}

namespace fs = std::filesystem;

constexpr std::size_t part_bytes = 4 << 20;

MappedFile open_text(const std::string& path) {
  MappedFile file(path, "give a text");
  if (file.text().empty()) throw InvalidInput(fmt::format("'{}' is empty; give a text", path));
  return file;
}

std::unique_ptr<Tokenizer> tokenizer_named(const std::string& name) {
  return name == "bytes" ? byte_tokenizer() : load_tokenizer(name);
}

ShardVersion version_for(const TokensEncodeCommand& command, std::int32_t vocabulary_size) {
  const ShardVersion needed = shard_version_for(vocabulary_size);
  if (command.version == ShardVersion::two_bytes && needed != ShardVersion::two_bytes) {
    throw InvalidInput(fmt::format(
        "--shard-version: the {} ids of '{}' have no room in version {}; take version {}", vocabulary_size,
        command.tokenizer, static_cast<int>(*command.version), static_cast<int>(needed)));
  }
  return command.version.value_or(needed);
}

void make_folder(const std::string& path) {
  std::error_code error;
  fs::create_directory(path, error);
  if (!fs::is_directory(path, error)) {
    throw InvalidInput(
        fmt::format("--output: '{}' cannot be made; name a folder, or a new one in a writable folder", path));
  }
}

}  // namespace

CLI::App* add_tokens(CLI::App& app, RawTokensOptions& raw) {
  CLI::App* tokens = app.add_subcommand("tokens", "Vocabularies, and texts as token ids");
  tokens->require_subcommand(1);
  raw.train_app = add_train(*tokens, raw.train);
  add_encode(*tokens, raw);
  return tokens;
}

TokensEncodeCommand parse(const RawTokensOptions& raw) {
  TokensEncodeCommand command = raw.encode;
  if (raw.version == 0) return command;
  const auto version = static_cast<ShardVersion>(raw.version);
  if (version != ShardVersion::two_bytes && version != ShardVersion::four_bytes)
    throw InvalidInput(fmt::format("--shard-version: {} is none that llm.c has; give 1 or 7", raw.version));
  command.version = version;
  return command;
}

int run_tokens_train_command(const TokensTrainCommand& command, std::string& output) {
  const MappedFile text = open_text(command.text_file);
  make_folder(command.output_folder);
  const std::string vocab = (fs::path(command.output_folder) / "vocab.json").string();
  const std::string merges = (fs::path(command.output_folder) / "merges.txt").string();
  OutputFile vocab_file("--output", vocab, Writing::whole);
  OutputFile merges_file("--output", merges, Writing::whole);
  const BytePairVocabulary vocabulary = train_byte_pairs(text.text(), command.vocabulary_size);
  merges_file.write(to_merges_text(vocabulary));
  merges_file.commit();
  vocab_file.write(to_vocab_json(vocabulary));
  vocab_file.commit();
  Lines lines;
  lines.add("text", "{} bytes", grouped(text.text().size()));
  lines.add("vocabulary", "{} tokens, {} merges", grouped(vocabulary.tokens.size()),
            grouped(vocabulary.merges.size()));
  output += std::move(lines).text();
  return 0;
}

int run_tokens_encode_command(const TokensEncodeCommand& command, std::string& output) {
  const auto tokenizer = tokenizer_named(command.tokenizer);
  const ShardVersion version = version_for(command, tokenizer->vocabulary_size());
  const MappedFile file = open_text(command.text_file);
  const std::string_view text = file.text();
  TokenShardWriter writer(command.output_file, version);
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = end_of_part(text, begin, part_bytes);
    writer.append(tokenizer->encode(text.substr(begin, end - begin)));
    begin = end;
    command.progress(fmt::format("{} of {} bytes", grouped(end), grouped(text.size())));
  }
  writer.commit();
  Lines lines;
  lines.add("text", "{} bytes", grouped(text.size()));
  lines.add("vocabulary", "{} tokens", grouped(static_cast<std::uint64_t>(tokenizer->vocabulary_size())));
  lines.add("tokens", "{}, {:.2f} bytes each", grouped(static_cast<std::uint64_t>(writer.size())),
            static_cast<double>(text.size()) / static_cast<double>(writer.size()));
  lines.add("shard", "version {}", static_cast<int>(version));
  output += std::move(lines).text();
  return 0;
}

}  // namespace stowage
