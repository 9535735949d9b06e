#include "src/ranks/message.h"

namespace stowage::ranks {
namespace {

constexpr std::uint32_t message_magic = 0x3152'5453;  // "STR1"

}  // namespace

std::string encode(const Message& message) {
  std::string bytes;
  bytes.reserve(head_bytes + message.text.size());
  put(bytes, message_magic);
  put(bytes, static_cast<std::uint32_t>(message.kind));
  put(bytes, static_cast<std::uint32_t>(message.rank));
  put(bytes, message.line);
  put(bytes, static_cast<std::uint32_t>(message.text.size()));
  return bytes += message.text;
}

std::string pack(std::span<const std::string> texts) {
  std::string packed;
  for (const std::string& text : texts) {
    put(packed, static_cast<std::uint32_t>(text.size()));
    packed += text;
  }
  return packed;
}

std::vector<std::string> unpack(std::string_view packed, std::size_t texts) {
  std::vector<std::string> unpacked;
  while (unpacked.size() < texts) {
    if (packed.size() < 4) throw BadMessage("a text is missing");
    const std::size_t bytes = get(packed, 0);
    if (packed.size() - 4 < bytes) throw BadMessage("a text is cut short");
    unpacked.emplace_back(packed.substr(4, bytes));
    packed.remove_prefix(4 + bytes);
  }
  if (!packed.empty()) throw BadMessage("bytes follow the last text");
  return unpacked;
}

std::optional<Message> MessageReader::next() {
  const std::string_view left = std::string_view(received_).substr(taken_);
  if (left.size() >= head_bytes) {
    const std::uint32_t kind = get(left, 4), bytes = get(left, 16);
    if (get(left, 0) != message_magic) throw BadMessage("no message begins here");
    if (kind > most_kind) throw BadMessage("a message of an unknown kind");
    if (bytes > most_text) throw BadMessage("a message announces more than it may have");
    if (left.size() - head_bytes >= bytes) {
      Message message{static_cast<MessageKind>(kind), static_cast<std::int32_t>(get(left, 8)), get(left, 12),
                      std::string(left.substr(head_bytes, bytes))};
      taken_ += head_bytes + bytes;
      return message;
    }
  }
  received_.erase(0, taken_);
  taken_ = 0;
  return std::nullopt;
}

}  // namespace stowage::ranks
