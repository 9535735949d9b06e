#include "samples/data/random_stream.h"

#include <Random123/philox.h>

namespace stowage::samples {
namespace {

std::uint32_t low(std::uint64_t value) { return static_cast<std::uint32_t>(value); }
std::uint32_t high(std::uint64_t value) { return static_cast<std::uint32_t>(value >> 32); }

}  // namespace

std::uint64_t random_bits(std::uint64_t seed, RandomStream stream, std::uint64_t step, std::uint32_t index,
                          std::uint32_t draw) {
  const r123::Philox4x32::key_type key = {{low(seed), high(seed)}};
  const r123::Philox4x32::ctr_type counter = {
      {low(step), high(step), index, static_cast<std::uint32_t>(stream) | draw << 8U}};
  const auto drawn = r123::Philox4x32()(counter, key);
  return std::uint64_t{drawn[1]} << 32 | drawn[0];
}

}  // namespace stowage::samples
