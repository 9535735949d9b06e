#include "tools/choices/gpt_sizes.h"

#include <algorithm>
#include <array>
#include <iterator>

namespace stowage {
namespace {

// Of the layers' matrices. Where these and the width rise, so does the whole, whatever the vocabulary.
constexpr std::int64_t parameters(const GptSize& size) { return size.layers * 12 * size.width * size.width; }

constexpr std::array<GptSize, 10> rungs = {{{"", 12, 768, 12},
                                            {"", 24, 1024, 16},
                                            {"", 24, 1536, 16},
                                            {"1.3b", 24, 2048, 16},
                                            {"2.7b", 32, 2560, 32},
                                            {"6.7b", 32, 4096, 32},
                                            {"13b", 40, 5120, 40},
                                            {"30b", 48, 7168, 56},
                                            {"66b", 64, 9216, 72},
                                            {"175b", 96, 12288, 96}}};

}  // namespace

const std::vector<GptSize>& named_gpt_sizes() {
  static const std::vector<GptSize> sizes = [] {
    std::vector<GptSize> named = {{"gpt2", 12, 768, 12},
                                  {"gpt2-medium", 24, 1024, 16},
                                  {"gpt2-large", 36, 1280, 20},
                                  {"gpt2-xl", 48, 1600, 25}};
    std::copy_if(rungs.begin(), rungs.end(), std::back_inserter(named),
                 [](const GptSize& size) { return !size.name.empty(); });
    return named;
  }();
  return sizes;
}

std::vector<GptSize> gpt_ladder() {
  std::vector<GptSize> ladder;
  for (std::size_t i = 0; i + 1 < rungs.size(); ++i) {
    for (GptSize size = rungs[i]; parameters(size) < parameters(rungs[i + 1]); ++size.layers) {
      ladder.push_back(size);
      size.name = {};
    }
  }
  ladder.push_back(rungs.back());
  return ladder;
}

}  // namespace stowage
