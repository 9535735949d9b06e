// GPT sizes that have names, and the ladder of sizes between them.
//
// gpt2…: Radford et al., "Language Models are Unsupervised Multitask Learners", table 2. 1.3b…175b: Brown et
// al., "Language Models are Few-Shot Learners", table 2.1, with 16 heads at width 2048, where the table's 24
// do not divide it, and width 5120 for 13b, where its 5140 is not a multiple of the 40 heads. 30b and 66b:
// Zhang et al., "OPT: Open Pre-trained Transformer Language Models", table 1.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace stowage {

struct GptSize {
  std::string_view name;  // "" between two rungs of the ladder
  std::int64_t layers = 0;
  std::int64_t width = 0;
  std::int64_t heads = 0;
};

const std::vector<GptSize>& named_gpt_sizes();

// By rising number of parameters: the rungs of table 2.1 (with OPT's), and between two of them the lower
// one with more layers, for as long as its layers hold fewer than the upper one's. Width never falls.
std::vector<GptSize> gpt_ladder();

}  // namespace stowage
