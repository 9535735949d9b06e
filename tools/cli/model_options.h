// The options that name a model and its shape, for the commands that ask about models.
#pragma once

#include "tools/choices/model_spec.h"

namespace CLI {
class App;
}

namespace stowage {

// Adds --gpt, --bert and --model. `words` must outlive the parsing; the function below too.
void add_model_options(CLI::App& app, const char* group, ModelWords& words);
// Adds --heads, --sequence, --batch, --vocabulary, --head-chunk, --table-rows, --keep-tokens, --moments,
// --code-activations and --type.
void add_shape_options(CLI::App& app, const char* group, ModelWords& words);

}  // namespace stowage
