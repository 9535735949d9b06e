// A small training on cards, by the words of its command line.
#pragma once

#include <sstream>
#include <string>

#include "tests/samples/rank_results.h"

namespace stowage::samples {

// Four steps with dropout, some of them clipped, in two gradient groups.
inline Words card_training(const std::string& text, const std::string& machine_file) {
  Words words = {"--data", text, "--machine", machine_file};
  std::istringstream more(
      "--device cuda --layers 1 --width 32 --heads 2 --sequence 16 --batch 4 --micro-batches 2 "
      "--gradient-groups 2 --steps 4 --warmup 2 --dropout 0.1 --clip 2 --threads 2");
  for (std::string word; more >> word;) words.push_back(word);
  return words;
}

}  // namespace stowage::samples
