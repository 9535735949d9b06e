// XXH3-128 as text.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace stowage {

inline constexpr std::size_t checksum_digits = 32;

// A checksum over bytes that come in pieces.
class Checksum {
 public:
  Checksum();
  ~Checksum();
  Checksum(const Checksum&) = delete;
  Checksum& operator=(const Checksum&) = delete;

  void add(std::span<const std::byte> bytes);
  // The checksum of all bytes so far: lower-case hexadecimal digits, the highest first.
  std::string digits() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string checksum_of(std::span<const std::byte> bytes);

}  // namespace stowage
