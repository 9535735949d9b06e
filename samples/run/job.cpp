#include "samples/run/job.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <exception>

#include "src/base/printable.h"
#include "src/device/host_limits.h"
#include "stowage/error.h"
#include "tools/calibrate/calibrate.h"
#include "tools/console/interrupt.h"
#include "tools/console/terminal.h"

namespace stowage::samples {
namespace {

constexpr std::chrono::seconds first_line{10}, between_lines{60};

constexpr int failed_code = 1;
constexpr int wrong_code = 2;
constexpr std::chrono::seconds silence{5};  // time until the user is told that ranks are waited for

// Swallows errors of clean-up after this rank has failed.
void quietly(const std::function<void()>& action) noexcept {
  try {
    action();
  } catch (const std::exception&) {
    return;
  }
}

// Ends the process at once, since MPI waits for a rank that is gone. `is_reported`: the user has read this
// rank's error already.
[[noreturn]] void end_program(const std::string& why, bool is_reported) {
  if (!is_reported)
    std::fprintf(stderr, "%s%s: %s\n", terminal_columns(stderr) > 0 ? "\r\033[K" : "",
                 program_invocation_short_name, printable_message(why).c_str());
  std::fflush(stdout);
  ::_exit(failed_code);
}

// Prints a line of the ranks' channel, unless it says that a rank came from this machine. A line that cannot
// be printed ends nothing.
void say_of_ranks(const std::string& line) {
  if (line.ends_with("from this machine")) return;
  try {
    fmt::print(stderr, "ranks: {}\n", printable_lines(line));
  } catch (const std::exception&) {
    return;
  }
}

}  // namespace

void WaitingLines::report(const Waiting& waiting, int rank) {
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
  // If rank 0 itself stands still, rank 1 prints the line.
  if (rank == 0 || (rank == 1 && waiting.standing.front() == 0))
    say_of_ranks(fmt::format("the process of rank {} stands still", fmt::join(waiting.standing, ", ")));
}

int exit_code_of(const std::exception& error) {
  const bool wrong = dynamic_cast<const InvalidInput*>(&error) != nullptr ||
                     dynamic_cast<const OutOfMemory*>(&error) != nullptr;
  if (const auto shortage = shortage_of(error)) return shortage->of_limit ? wrong_code : failed_code;
  return wrong ? wrong_code : failed_code;
}

Job::Job(RankLaunch launch) : launch_(std::move(launch)) {
  if (launch_.size == 1) return;
  {
    const Underway work("joining", fmt::format("{} processes", launch_.size), silence);
    channel_ = open_channel(
        launch_, {.waits = [this](const Waiting& waiting) { waiting_lines_.report(waiting, rank()); },
                  .stuck = [this](const std::string& why) { end_program(why, is_reported_); },
                  .say = say_of_ranks});
  }
  launch_.rank = channel_->rank();
  const std::string here = host_name();
  const std::vector<std::string> machines = from_each(here);
  ranks_here_ = static_cast<int>(std::count(machines.begin(), machines.end(), here));
  local_rank_ = static_cast<int>(std::count(machines.begin(), machines.begin() + rank(), here));
  end_of_work_.emplace([this]() -> std::string {
    const auto failure = channel_->failure();
    return failure && failure->rank != rank() ? error_of("the run", *failure).what() : "";
  });
  on_abandon_.emplace(
      [this] { abandon(fmt::format("stopped by {} before the first step", interrupted_by())); });
}

Job::~Job() = default;

std::string Job::from_leader(const std::string& text) {
  return channel_ ? long_text(*channel_, 0, text) : text;
}

std::vector<std::string> Job::from_each(const std::string& text) {
  return channel_ ? channel_->gather(text) : std::vector<std::string>{text};
}

void Job::together(const std::function<void()>& work) {
  if (!channel_) return work();
  std::exception_ptr failure;
  int code = 0;
  try {
    work();
  } catch (const CommunicatorError&) {
    throw;
  } catch (const ReportedByOtherRank&) {
    throw;
  } catch (const std::exception& error) {
    failure = std::current_exception();
    code = exit_code_of(error);
  }
  int first = size(), first_code = 0;
  try {
    const std::vector<std::string> codes = from_each(std::to_string(code));
    for (int rank = size() - 1; rank >= 0; --rank) {
      const int of_rank = std::stoi(codes[static_cast<std::size_t>(rank)]);
      if (of_rank == 0) continue;
      first = rank;
      first_code = of_rank;
    }
  } catch (const CommunicatorError&) {
    // The CommunicatorError is only a consequence of this failure.
    if (failure) std::rethrow_exception(failure);
    throw;
  }
  if (first == size()) return;
  all_end_ = true;
  if (first == rank()) std::rethrow_exception(failure);
  throw ReportedByOtherRank(first_code);
}

void Job::expect_same(const char* what, const std::string& text) {
  if (!channel_) return;
  const std::string of_leader = from_leader(text);
  together([&] {
    if (text != of_leader)
      throw InvalidInput(fmt::format("{} differs from that of rank 0: let all ranks have the same", what));
  });
}

bool Job::stops() {
  if (!channel_) return interrupted();
  for (const std::string& signal : from_each(std::to_string(interrupt_signal()))) {
    if (signal == "0") continue;
    count_as_interrupted(std::stoi(signal));
    return true;
  }
  return false;
}

void Job::meet() {
  if (channel_) channel_->barrier();
}

std::unique_ptr<Communicator> Job::open_communicator(Device& device,
                                                     const CommunicatorOptions& options) const {
  if (device.info().backend == "cuda") return open_nccl_communicator(device, channel_);
  require_simulated();
  return open_mpi_communicator(device, channel_, options);
}

void Job::require_simulated() const {
  if (size() == 1 || launch_.port == 0) return;
  throw InvalidInput(
      fmt::format("{} has started {} processes, which train on cards: for simulated devices give one process "
                  "--devices {}, or start the processes by mpirun",
                  launch_.by, size(), size()));
}

void Job::fail(const std::exception& error) noexcept {
  is_reported_ = true;
  if (!channel_) return;
  // A launcher ends all ranks once the first has ended. By then the rank that reports the error has
  // printed it.
  if (all_end_) return quietly([&] { meet(); });
  const auto* const of_group = dynamic_cast<const CommunicatorError*>(&error);
  if (of_group == nullptr || of_group->failed_rank() == rank()) abandon(error.what());
}

void Job::abandon(const std::string& why) noexcept {
  if (channel_) quietly([&] { channel_->fail({rank(), {}, why}); });
}

}  // namespace stowage::samples
