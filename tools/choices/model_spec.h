// A model that the command line names, in place of a graph file; GPT sizes that have names, and the ladder
// between them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/models/require_valid.h"
#include "stowage/graph_builder.h"
#include "tools/answer/model_spec.h"

namespace stowage {

// gpt2…: Radford et al., "Language Models are Unsupervised Multitask Learners", table 2. 1.3b…175b: Brown et
// al., "Language Models are Few-Shot Learners", table 2.1, with 16 heads at width 2048, where the table's 24
// do not divide it, and width 5120 for 13b, where its 5140 is not a multiple of the 40 heads. 30b and 66b:
// Zhang et al., "OPT: Open Pre-trained Transformer Language Models", table 1.
struct GptSize {
  std::string_view name;  // "" for a size between two rungs of the ladder
  std::int64_t layers = 0;
  std::int64_t width = 0;
  std::int64_t heads = 0;
};

const std::vector<GptSize>& named_gpt_sizes();

// Returns sizes by rising number of parameters: the rungs of table 2.1 (with OPT's), and between two rungs
// the lower one with more layers, as long as its layers hold fewer than the upper one's. Width never falls.
std::vector<GptSize> gpt_ladder();

// The options as they were given; empty: not given.
struct ModelWords {
  std::string gpt{};    // LAYERSxWIDTH or one of named_gpt_sizes()
  std::string bert{};   // LAYERSxWIDTH, base or large
  std::string model{};  // path of a folder with config.json, one of published_names() or of named_gpt_sizes()
  std::string heads{}, sequence{}, batch{}, micro_batches{}, gradient_groups{}, vocabulary{}, type{},
      head_chunk{}, table_rows{}, keep_tokens{}, moments{}, devices{}, code_activations{};
  bool clips = true;  // gradients are clipped by their norm
};

// Throws InvalidInput that names the option and says what it takes. Returns nothing if none of --gpt, --bert
// and --model is given, and none of the options that go with them. `type`: the type if --type is not given.
// Unless the words say otherwise, each device has one gradient group, and each group one micro-batch.
std::optional<ModelSpec> model_spec(const ModelWords& words, DataType type);
// Takes a size of the ladder in place of --gpt, which must not be given. The number of heads is the ladder's.
ModelSpec model_spec(const GptSize& size, const ModelWords& words, DataType type);

// Returns the training step with AdamW that train_gpt and train_bert (with its pre-training heads) build for
// these sizes; for several devices the step of the first device, whose plan serves all. Throws InvalidInput
// naming the field that is too large.
Graph build(const ModelSpec& spec, const ChunkGrid& grid = {});

// The trainers and `stowage plan` share these two rules.
// Returns how many rows the token table has: the number of tokens, rounded up to a multiple of 64.
std::int64_t padded_vocabulary(std::int64_t tokens);
// Returns the number of micro-batches where --micro-batches is not given: one for each gradient group. A BERT
// with one group has two, if the batch is even.
std::int64_t default_micro_batches(const ModelFamily& family, std::int64_t batch,
                                   std::int64_t gradient_groups);

// Parses a whole number from 1 to `most`. Throws InvalidInput that begins with `option`.
std::int64_t parse_count(const std::string& option, const std::string& text,
                         std::int64_t most = most_of_others);

}  // namespace stowage
