// BitsHash: 64 bits that stand for a value's bytes, to be compared with the hash of the same value made
// again.
//
// The hash is a chain of steps, each one to one both in the chain and in the word that it takes in. So two
// values that differ in a single word always have different hashes (no library's hash promises that), and
// other values have the same hash with a chance of about 2^-64. The step is the finaliser of SplitMix64
// (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014); one multiplication
// alone would let the highest bit of a word cancel with a bit of the next. The hash does not withstand forged
// collisions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace stowage {

class BitsHash {
 public:
  // Adds a part of the value. Every part but the last must be a multiple of 8 bytes long.
  void add(std::span<const std::byte> part) {
    bytes_ += part.size();
    for (; part.size() >= sizeof(std::uint64_t); part = part.subspan(sizeof(std::uint64_t)))
      mix(part.data(), sizeof(std::uint64_t));
    if (!part.empty()) mix(part.data(), part.size());
  }
  std::uint64_t value() const { return step(chain_, bytes_); }

 private:
  static std::uint64_t step(std::uint64_t chain, std::uint64_t word) {
    std::uint64_t x = chain ^ word;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31);
  }
  void mix(const std::byte* data, std::size_t bytes) {
    std::uint64_t word = 0;
    std::memcpy(&word, data, bytes);
    chain_ = step(chain_, word);
  }

  std::uint64_t chain_ = 0x2545f4914f6cdd1dU;
  std::uint64_t bytes_ = 0;
};

}  // namespace stowage
