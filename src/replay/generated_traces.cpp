#include "src/replay/generated_traces.h"

#include <algorithm>

namespace stowage {
namespace {

// SplitMix64 (Steele, Lea, Flood, 2014): the standard library's distributions differ from one to the next.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15U + 1) {}
  // In [low, high].
  std::uint64_t between(std::uint64_t low, std::uint64_t high) {
    state_ += 0x9e3779b97f4a7c15U;
    std::uint64_t value = state_;
    value = (value ^ (value >> 30U)) * 0xbf58476d1ce4e5b9U;
    value = (value ^ (value >> 27U)) * 0x94d049bb133111ebU;
    return low + (value ^ (value >> 31U)) % (high - low + 1);
  }
  // From 2^low to 2^high bytes, each power of two as likely as the next.
  Bytes bytes(std::uint64_t low, std::uint64_t high) {
    const Bytes power = Bytes{1} << between(low, high - 1);
    return power + between(0, power - 1);
  }

 private:
  std::uint64_t state_;
};

using Items = std::vector<PlacementItem>;

std::int64_t time_of(std::uint64_t value) { return static_cast<std::int64_t>(value); }

void add_long_lived(Draws& draws, std::int64_t end, Items& items) {
  const std::uint64_t count = draws.between(4, 40);
  const auto early = static_cast<std::uint64_t>(end / 10);
  for (std::uint64_t i = 0; i < count; ++i)
    items.push_back(
        {time_of(draws.between(0, early)), end - time_of(draws.between(0, early)), draws.bytes(16, 26)});
}

// Grows by a quarter to the double, and moves each time.
void add_growing(Draws& draws, std::int64_t end, Items& items) {
  const std::uint64_t count = draws.between(2, 8);
  for (std::uint64_t i = 0; i < count; ++i) {
    Bytes bytes = draws.bytes(14, 20);
    std::int64_t at = time_of(draws.between(0, static_cast<std::uint64_t>(end / 4)));
    while (at < end && bytes < 128_MiB) {
      const std::int64_t next = at + time_of(draws.between(20, 200));
      items.push_back({at, std::min(next + 1, end), bytes});  // the old one is there while it is copied
      bytes += bytes * draws.between(1, 4) / 4;
      at = next;
    }
  }
}

void add_short(Draws& draws, std::int64_t end, Items& items) {
  for (std::int64_t at = 0; at < end; at += time_of(draws.between(1, 4))) {
    const std::int64_t length =
        time_of(draws.between(0, 9) == 0 ? draws.between(20, 120) : draws.between(1, 12));
    items.push_back({at, std::min(at + length, end), draws.bytes(9, draws.between(0, 3) == 0 ? 27 : 22)});
  }
}

}  // namespace

std::vector<PlacementItem> generated_lifetimes(std::uint64_t seed) {
  Draws draws(seed);
  const auto end = time_of(draws.between(500, 4000));
  Items items;
  add_long_lived(draws, end, items);
  add_growing(draws, end, items);
  add_short(draws, end, items);
  return items;
}

}  // namespace stowage
