// The sizes of the model that --init names.
#pragma once

#include <fmt/format.h>

#include <string>

#include "samples/options/options.h"
#include "stowage/error.h"

namespace stowage::samples {

// Runs `action`, and puts the flag before what it complains of.
template <class Action>
auto of_flag(const char* flag, Action action) {
  try {
    return action();
  } catch (const InvalidInput& error) {
    throw InvalidInput(fmt::format("{} {}", flag, error.what()));
  }
}

// Which of the model's flags the command line has.
struct GivenSizes {
  bool layers = false, width = false, heads = false, sequence = false, dropout = false;
};

// With --init: reads its config.json and takes the model's sizes, and dropout, from it. Throws InvalidInput
// for a model that is not computed here, or that a given flag contradicts, naming both.
void take_initial_sizes(Options& options, const GivenSizes& given);

// Runs `action`, and puts --init and its place before what it complains of, where there is one.
template <class Action>
auto about_initial(const Options& options, Action action) {
  try {
    return action();
  } catch (const InvalidInput& error) {
    throw InvalidInput(options.init.empty() ? error.what() : "--init " + options.init + ": " + error.what());
  }
}

}  // namespace stowage::samples
