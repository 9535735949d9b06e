// Tokenizers as options name them.
#pragma once

#include <memory>
#include <string>

#include "samples/options/options.h"
#include "stowage/tokenizer.h"

namespace stowage::samples {

// The tokenizer of --tokenizer, or that of bytes. Throws InvalidInput naming the flag and the file.
std::unique_ptr<Tokenizer> tokenizer_of(const Options& options);

// For a configuration: all tokens by id.
std::string fingerprint(const Tokenizer& tokenizer);

// A model's vocabulary holds `tokens` ids: --init's, which may have more, or these. It is padded to a
// multiple of 64. `needs` says whose ids they are. Throws InvalidInput where the model of --init has fewer.
void set_vocabulary(Options& options, std::int64_t tokens, const std::string& needs);

}  // namespace stowage::samples
