#include "samples/run/waiting_lines.h"

#include <fmt/format.h>

#include <exception>

#include "src/base/printable.h"
#include "stowage/error.h"
#include "tools/console/interrupt.h"

namespace stowage::samples {
namespace {

constexpr std::chrono::seconds first_line{10}, between_lines{60};

}  // namespace

void say_of_ranks(const std::string& line) {
  if (line.ends_with("from this machine")) return;
  try {
    fmt::print(stderr, "ranks: {}\n", printable_lines(line));
  } catch (const std::exception&) {
    return;
  }
}

void WaitingLines::tell(const Waiting& waiting, int rank) {
  if (interrupted() && !waiting.standing.empty())
    throw CommunicatorError(
        fmt::format("its process stands still, and the run was stopped by {}", interrupted_by()), "waiting",
        waiting.standing.front());
  if (waiting.time < first_line && waiting.standing.empty()) {
    next_line_ = {};
    standing_.clear();
    return;
  }
  const auto now = std::chrono::steady_clock::now();
  const bool is_news = waiting.standing != standing_;
  standing_ = waiting.standing;
  if (now < next_line_ && !is_news) return;
  next_line_ = now + between_lines;
  if (rank == 0 && !waiting.missing.empty())
    say_of_ranks(fmt::format("waiting for rank {} since {:.0f} s", fmt::join(waiting.missing, ", "),
                             std::chrono::duration<double>(waiting.time).count()));
  if (waiting.standing.empty()) return;
  // Where rank 0 is the one, the first of the others says so.
  if (rank == 0 || (rank == 1 && waiting.standing.front() == 0))
    say_of_ranks(fmt::format("the process of rank {} stands still", fmt::join(waiting.standing, ", ")));
}

}  // namespace stowage::samples
