// Messages between the ranks of a channel (channel.h), as bytes. Every integer is little-endian, and sockets
// carry nothing else.
//
//   message   u32 magic, u8 kind, u8[3] 0, i32 rank, u32 line, u32 bytes of the text, text
//
// A reader trusts no message: it refuses one that announces more than `most_text` bytes, and its memory grows
// with the bytes that have come, never with those that are announced.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace stowage::ranks {

enum class MessageKind : std::uint8_t {
  part,      // to rank 0: this rank has come to call number `line`, with a text
  whole,     // from rank 0: all ranks have come to call number `line`; the texts of all, or of one
  failed,    // `rank` has failed in its communicator number `line`: texts call and reason
  ended,     // `rank` has ended its communicator number `line`
  died,      // `rank` is dead, or, to rank 0, stands still; the text says how that was seen
  standing,  // from rank 0: the text has a byte for each rank, 1 if the rank stands still
  left,      // `rank` will come to no further call
  gone,      // sent behind `left`, of this rank alone: its process may end
  alive,     // sent every second
  begun,     // from rank 0: all ranks have come together
  refused,   // from rank 0, instead of `begun`: the text says why there is no group
};
inline constexpr std::uint8_t most_kind = static_cast<std::uint8_t>(MessageKind::refused);

struct Message {
  MessageKind kind = MessageKind::alive;
  std::int32_t rank = 0;
  std::uint32_t line = 0;
  std::string text;
  friend bool operator==(const Message&, const Message&) = default;
};

inline constexpr std::size_t head_bytes = 20;
// The longest text of a message: a call's text, and room for packing.
inline constexpr std::size_t most_text = (std::size_t{64} << 20) + (std::size_t{64} << 10);

// Thrown by readers if the bytes are no message.
class BadMessage : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Requires at most most_text bytes of text.
std::string encode(const Message& message);

// Packs texts into the text of a message: for each a u32 of its length, then its bytes.
std::string pack(std::span<const std::string> texts);
// Returns exactly `texts` texts. Throws BadMessage for anything else.
std::vector<std::string> unpack(std::string_view packed, std::size_t texts);

// Reads messages from bytes that come in pieces.
class MessageReader {
 public:
  void add(std::string_view bytes) { received_.append(bytes); }
  // Returns the next message; nullopt while bytes are missing. Throws BadMessage.
  std::optional<Message> next();

 private:
  std::string received_;
  std::size_t taken_ = 0;  // bytes of received_ that were read
};

// Appends the integer as four bytes, little-endian.
inline void put(std::string& to, std::uint32_t value) {
  for (int byte = 0; byte < 4; ++byte) to.push_back(static_cast<char>((value >> (8 * byte)) & 0xff));
}

// Requires four bytes at `at`.
inline std::uint32_t get(std::string_view from, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t byte = 0; byte < 4; ++byte)
    value |= static_cast<std::uint32_t>(static_cast<unsigned char>(from[at + byte])) << (8 * byte);
  return value;
}

}  // namespace stowage::ranks
