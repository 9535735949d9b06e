// `stowage tokens`: a vocabulary learned from a text, and a text as a shard of token ids.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "stowage/token_shards.h"

namespace CLI {
class App;
}

namespace stowage {

struct TokensTrainCommand {
  std::string text_file;
  std::int32_t vocabulary_size = 0;
  std::string output_folder;  // folder for vocab.json and merges.txt, made if it does not exist
};

struct TokensEncodeCommand {
  std::string text_file;
  std::string tokenizer;                // a name that load_tokenizer takes, or "bytes"
  std::optional<ShardVersion> version;  // nullopt: the smaller version that holds the vocabulary
  std::string output_file;
  std::function<void(const std::string&)> progress = [](const std::string&) {};
};

// Append the answer to `output` and return the exit code, 0. Throw InvalidInput naming the option, or the
// file that cannot be read, parsed or written; then nothing half-written is left.
int run_tokens_train_command(const TokensTrainCommand& command, std::string& output);
int run_tokens_encode_command(const TokensEncodeCommand& command, std::string& output);

// The command line before it is parsed. Must outlive the parsing.
struct RawTokensOptions {
  TokensTrainCommand train;
  TokensEncodeCommand encode;
  int version = 0;  // 0: the option is not given
  const CLI::App* train_app = nullptr;
};

CLI::App* add_tokens(CLI::App& app, RawTokensOptions& raw);

// Throws InvalidInput that names the option and says what it takes.
TokensEncodeCommand parse(const RawTokensOptions& raw);

}  // namespace stowage
