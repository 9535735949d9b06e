// --generate: text from a model that was trained before.
#pragma once

#include "samples/options/options.h"

namespace stowage::samples {

// Prints the prompt and what the model of --checkpoint, --resume or --init makes of it, and returns the
// program's exit code: 0, or 130 after Ctrl-C. Needs no device: the model is in host memory, in f32. Throws
// InvalidInput for a model or tokenizer that cannot be read, or that do not belong together.
int generate_text(const Options& options);

}  // namespace stowage::samples
