// --generate and --generate-ids: text from the model of --checkpoint, --resume or --init, on the CPU, without
// a device. The model is in host memory once, in its own type.
#pragma once

#include "samples/options/options.h"

namespace stowage::samples {

// With --generate prints the prompt and its continuation; with --generate-ids one id a line, each as soon as
// it is picked, until a stop token, which is not printed. Returns the program's exit code: 0, or 130 after
// Ctrl-C, or if nobody reads the output any more, once a token is written. Throws InvalidInput for a model, a
// tokenizer or ids that cannot be read or do not belong together, and for a model that does not fit in the
// host's memory.
int write_text(const Options& options);

}  // namespace stowage::samples
