// Training texts: any bytes are one, and none makes a batch that leaves the text.
#include "samples/data/text_data.h"

#include <cmath>
#include <memory>

#include "tests/fuzz/target.h"

namespace stowage::fuzz {

std::vector<std::string> seeds() {
  return {"In the beginning was the word", std::string(300, 'a'), "\xff\x01\x80 12 34\n"};
}
std::vector<std::string> dictionary() { return {std::string(1, '\0'), "\xf0\x9f\x98\x80", "\r\n"}; }

}  // namespace stowage::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stowage;
  const std::string_view text = fuzz::text_of(data, size);
  const double entropy = samples::bigram_entropy(text);
  if (!(entropy >= 0 && entropy <= std::log(256) + 1e-9)) fuzz::broken("an entropy that no bytes have");
  const auto source =
      fuzz::parsed_or_refused([&] { return std::make_unique<samples::BatchSource>(text, 3, 7, size); });
  if (!source) return 0;
  samples::Batch batch;
  (*source)->fill(size, batch);
  if (batch.tokens.size() != 21 || batch.targets.size() != 21) fuzz::broken("a batch of another size");
  return 0;
}
