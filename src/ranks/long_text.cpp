#include <algorithm>

#include "stowage/channel.h"

namespace stowage {
namespace {

// A piece begins with whether it is the last.
constexpr char last = '.', more = '+';
constexpr std::size_t most_piece = most_call_bytes - 1;

}  // namespace

std::string long_text(Channel& channel, int root, std::string_view text) {
  std::string whole;
  for (;;) {
    const std::string_view left = text.substr(std::min(whole.size(), text.size()));
    const char kind = left.size() <= most_piece ? last : more;
    const std::string received = channel.from(root, kind + std::string(left.substr(0, most_piece)));
    whole.append(received, 1);
    if (received.front() == last) return whole;
  }
}

}  // namespace stowage
