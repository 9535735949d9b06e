// Makes inputs out of seeds: run k of a mutator is always the same text, whatever ran before it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace stowage::fuzz {

class Mutator {
 public:
  // `seeds`: at least one. Inputs are at most twice as long as the longest.
  Mutator(std::vector<std::string> seeds, std::vector<std::string> dictionary, std::uint64_t seed);

  // One to four changes of a seed: bits, bytes, pieces taken out, doubled, cut off or spliced in from another
  // seed, numbers replaced by interesting ones, words of the dictionary, quoted texts exchanged, lines moved.
  std::string input(std::uint64_t run) const;

 private:
  std::vector<std::string> seeds_;
  std::vector<std::string> dictionary_;
  std::uint64_t seed_;
  std::size_t longest_ = 0;
};

}  // namespace stowage::fuzz
