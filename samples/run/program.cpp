#include "samples/run/program.h"

#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <optional>
#include <string>

#include "samples/options/options.h"
#include "samples/run/job.h"
#include "samples/run/write_text.h"
#include "src/base/printable.h"
#include "src/base/standard_streams.h"
#include "src/base/temporary.h"
#include "src/device/host_limits.h"
#include "stowage/error.h"

namespace stowage::samples {
namespace {

// Returns the program's name, with the rank for all but the first.
std::string speaker(Program program, int rank) {
  return rank == 0 ? program_name(program) : fmt::format("{}: rank {}", program_name(program), rank);
}

// The message for the user, and the program's exit code.
struct UserMessage {
  std::string text;
  int exit_code;
};

UserMessage message_for(const std::exception& error) {
  const int code = exit_code_of(error);
  if (dynamic_cast<const OutOfMemory*>(&error) != nullptr)
    return {fmt::format("{}. Or choose a smaller model, --batch or --sequence; on a device that is full, a "
                        "smaller --device-memory",
                        error.what()),
            code};
  if (const auto shortage = shortage_of(error))
    return {fmt::format("{}; or choose a smaller model, --batch or --sequence, or fewer --threads",
                        shortage->text),
            code};
  return {error.what(), code};
}

int fail(Program program, int rank, const std::exception& error) {
  const auto* const elsewhere = dynamic_cast<const ReportedByOtherRank*>(&error);
  if (elsewhere != nullptr) return elsewhere->exit_code();
  const auto [text, code] = message_for(error);
  std::fflush(stdout);
  std::fprintf(stderr, "%s: %s\n", speaker(program, rank).c_str(), printable_message(text).c_str());
  return code;
}

// Throws WrongNumber, which each process reports before they come together: there may be no other. Other
// mistakes in the arguments are reported once, later.
void expect_right_number(int count, const char* const* arguments, Program program, const RankLaunch& launch) {
  if (launch.size == 1) return;
  try {
    parse_command_line(count, arguments, program, launch.size);
  } catch (const WrongNumber&) {
    throw;
  } catch (const std::exception&) {
    return;
  }
}

int run(int count, const char* const* arguments, Program program, Job& job) {
  CommandLine command;
  job.together([&] { command = parse_command_line(count, arguments, program, job.size()); });
  if (command.help.empty() && !writes_text(command.options)) return train(command.options, job);
  if (!job.leads()) return 0;
  if (command.help.empty()) return write_text(command.options);
  std::fputs(command.help.c_str(), stdout);
  return 0;
}

}  // namespace

int run_program(Program program, int count, const char* const* arguments) {
  keep_standard_streams();
  remove_temporaries_at_signals();
  RankLaunch launch;
  std::optional<Job> job;
  try {
    launch = read_launch();
    expect_right_number(count, arguments, program, launch);
    job.emplace(launch);
    if (!job->leads()) drop_standard_output();
    const int code = run(count, arguments, program, *job);
    if (code == 0) require_printed();
    job->meet();
    return code;
  } catch (const std::exception& error) {
    const int code = fail(program, job ? job->rank() : launch.rank, error);
    if (job) job->fail(error);
    return code;
  }
}

}  // namespace stowage::samples
