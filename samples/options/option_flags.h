// The flags of train_gpt and train_bert, by group.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "samples/options/options.h"

namespace stowage::samples {

// What CLI11 fills in before the words are understood.
struct Words {
  std::string type = "f32";
  std::string device_memory = "unlimited";
  std::string host_memory = "unlimited";
  std::string pageable = "auto";
  std::string bucket_size = "auto";
  std::string link_bandwidth = "8GB/s";
  std::string link_both;
  std::string policy = "auto";
  std::string speculate = "auto";
  std::string prompt;
  std::string decay = "matrices";
  std::string moments = "f32";
  std::string schedule = "cosine";
};

// Adds those of `options.kind`'s program, whose defaults are what `options` and `words` hold; both must
// outlive the parsing.
void add_flags(CLI::App& app, Options& options, Words& words);

}  // namespace stowage::samples
