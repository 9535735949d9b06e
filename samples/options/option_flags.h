// The flags of train_gpt and train_bert, by group.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "samples/options/options.h"
#include "tools/choices/plan_choice.h"

namespace stowage::samples {

// Option values as they are given, before they are parsed.
struct RawOptions {
  RawPlanOptions plan;
  std::string type = "f32";
  std::string pageable = "auto";
  std::string link_bandwidth = "8GB/s";
  std::string link_both;
  std::string prompt, prompt_ids, stop_ids;
  std::string decay = "matrices";
  std::string moments = "f32";
  std::string code_activations = "off";
  std::string schedule = "cosine";
  std::string export_type;
  std::string evaluate_on = "auto";
};

// Adds the flags of `options.program`, whose defaults are what `options` and `raw` hold; both must
// outlive the parsing.
void add_flags(CLI::App& app, Options& options, RawOptions& raw);

}  // namespace stowage::samples
