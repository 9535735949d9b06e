// The sizes of the model that --init names.
#pragma once

#include <string>

#include "samples/options/options.h"
#include "tools/console/text.h"

namespace stowage::samples {

// The model's flags that the command line has.
struct GivenSizes {
  bool layers = false, width = false, heads = false, sequence = false, dropout = false, table_rows = false,
       type = false;
};

// Does nothing without --init. With --init, reads the model's config.json and takes its sizes and dropout.
// Without --type, weights have the type that most of them have in the files. Without --sequence, samples are
// as long as the model takes, but where positions are not learned at most as ModelFamily::defaults says.
// Throws InvalidInput for a model that is not computed here, or that a given flag contradicts, naming both.
void take_initial_sizes(Options& options, const GivenSizes& given);

// Runs `action`; puts --init and its path, if it is given, before the message of an InvalidInput.
template <class Action>
auto about_initial(const Options& options, Action action) {
  return with_prefix(options.init.empty() ? "" : "--init " + options.init + ": ", action);
}

}  // namespace stowage::samples
