#include <fmt/core.h>

#include <algorithm>

#include "stowage/channel.h"

namespace stowage {
namespace {

// The first byte of a piece tells whether it is the last one.
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

CommunicatorError error_of(std::string_view call, const RankFailure& failure) {
  const bool of_call = !failure.call.empty() && failure.call != "abort";
  const std::string in = of_call ? " in " + failure.call : std::string{};
  return {fmt::format("{}: rank {} failed{}: {}. End on every rank, and go on from the last checkpoint", call,
                      failure.rank, in, failure.reason),
          std::string(call), failure.rank};
}

}  // namespace stowage
