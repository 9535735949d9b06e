#include "stowage/channel.h"

#include <fmt/core.h>

namespace stowage {

CommunicatorError error_of(std::string_view call, const RankFailure& failure) {
  const bool of_call = !failure.call.empty() && failure.call != "abort";
  const std::string in = of_call ? " in " + failure.call : std::string{};
  return {fmt::format("{}: rank {} failed{}: {}. End on every rank, and go on from the last checkpoint", call,
                      failure.rank, in, failure.reason),
          std::string(call), failure.rank};
}

}  // namespace stowage
