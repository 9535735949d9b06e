// A model that the command line names, in the place of a graph file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "src/models/require_valid.h"
#include "stowage/graph.h"
#include "tools/answer/model_spec.h"
#include "tools/choices/gpt_sizes.h"

namespace stowage {

// The options as they were given; empty: not given.
struct ModelWords {
  std::string gpt{};   // LAYERSxWIDTH or a name of gpt_sizes.h
  std::string bert{};  // LAYERSxWIDTH, base or large
  std::string heads{}, sequence{}, batch{}, micro_batches{}, gradient_groups{}, vocabulary{}, type{},
      head_chunk{}, moments{}, devices{};
  bool clips = true;  // gradients, by their norm
};

// Throws InvalidInput that names the option and says what it takes. Nothing: neither --gpt nor --bert is
// given, and none of the options that go with them. `type`: where --type is not given. Where the
// words do not say otherwise, each device has one gradient group, and each group one micro-batch.
std::optional<ModelSpec> model_spec(const ModelWords& words, DataType type);
// The same with a size of the ladder in the place of --gpt, which must not be given. Heads are the ladder's.
ModelSpec model_spec(const GptSize& size, const ModelWords& words, DataType type);

// The training step with AdamW, as train_gpt and train_bert (with its pre-training heads) build it for these
// sizes; of several devices that of the first, whose plan serves all. Throws InvalidInput naming the field
// that is too large.
Graph build(const ModelSpec& spec);

// The trainers and `stowage plan` share these two rules.
// Returns how many rows the token table has: the number of tokens, rounded up to a multiple of 64.
std::int64_t padded_vocabulary(std::int64_t tokens);
// Returns the number of micro-batches where --micro-batches is not given: one for each gradient group. A BERT
// with one group has two, if the batch is even.
std::int64_t default_micro_batches(ModelFamily family, std::int64_t batch, std::int64_t gradient_groups);

// A whole number from 1 to `most`. Throws InvalidInput that begins with `option`.
std::int64_t parse_count(const std::string& option, const std::string& text,
                         std::int64_t most = most_of_others);

}  // namespace stowage
