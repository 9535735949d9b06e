// Streams numbered from 0 by first use.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>

namespace stowage {

inline constexpr std::size_t most_streams = 4096;

class StreamNumbers {
 public:
  // Nothing for one stream more than most_streams.
  std::optional<std::uint32_t> number_of(std::uint64_t stream) {
    const auto [place, added] = numbers_.try_emplace(stream, static_cast<std::uint32_t>(numbers_.size()));
    if (numbers_.size() > most_streams) return std::nullopt;
    return place->second;
  }

 private:
  std::unordered_map<std::uint64_t, std::uint32_t> numbers_;
};

}  // namespace stowage
