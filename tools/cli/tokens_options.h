// The options of `stowage tokens`.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "tools/cli/tokens_command.h"

namespace stowage {

// What CLI11 fills in before the words are understood. Must outlive the parsing.
struct TokensWords {
  TokensTrainCommand train;
  TokensEncodeCommand encode;
  int version = 0;  // 0: not given
  const CLI::App* train_app = nullptr;
};

CLI::App* add_tokens(CLI::App& app, TokensWords& words);

// Throws InvalidInput that names the option and says what it takes.
TokensEncodeCommand understand(const TokensWords& words);

}  // namespace stowage
