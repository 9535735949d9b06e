#include "samples/run/program.h"

#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <optional>
#include <string>

#include "samples/options/options.h"
#include "samples/run/generation.h"
#include "samples/run/job.h"
#include "samples/run/training.h"
#include "src/base/printable.h"
#include "src/base/standard_streams.h"
#include "src/base/temporary.h"
#include "src/device/host_limits.h"
#include "stowage/error.h"

namespace stowage::samples {
namespace {

// All ranks but the first say who they are.
std::string speaker(ModelKind kind, int rank) {
  return rank == 0 ? program_name(kind) : fmt::format("{}: rank {}", program_name(kind), rank);
}

// What people read of an error, and the exit code.
struct Told {
  std::string text;
  int exit_code;
};

Told told(const std::exception& error) {
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

int fail(ModelKind kind, int rank, const std::exception& error) {
  const auto* const elsewhere = dynamic_cast<const ToldElsewhere*>(&error);
  if (elsewhere != nullptr) return elsewhere->exit_code();
  const auto [text, code] = told(error);
  std::fflush(stdout);
  std::fprintf(stderr, "%s: %s\n", speaker(kind, rank).c_str(), printable_message(text).c_str());
  return code;
}

// A wrong number of processes is known before they come together, and each tells it: there may be no other.
// What else is wrong with the arguments is told once.
void expect_right_number(int count, const char* const* arguments, ModelKind kind, const RankLaunch& launch) {
  if (launch.size == 1) return;
  try {
    parse_command_line(count, arguments, kind, launch.size);
  } catch (const WrongNumber&) {
    throw;
  } catch (const std::exception&) {
    return;
  }
}

int run(int count, const char* const* arguments, ModelKind kind, Job& job) {
  CommandLine command;
  job.together([&] { command = parse_command_line(count, arguments, kind, job.size()); });
  if (command.help.empty() && !command.options.generate) return train(command.options, job);
  if (!job.leads()) return 0;
  if (command.help.empty()) return generate_text(command.options);
  std::fputs(command.help.c_str(), stdout);
  return 0;
}

}  // namespace

int run_program(ModelKind kind, int count, const char* const* arguments) {
  keep_standard_streams();
  remove_temporaries_at_signals();
  RankLaunch launch;
  std::optional<Job> job;
  try {
    launch = read_launch();
    expect_right_number(count, arguments, kind, launch);
    job.emplace(launch);
    if (!job->leads()) drop_standard_output();
    const int code = run(count, arguments, kind, *job);
    if (code == 0) require_printed();
    job->meet();
    return code;
  } catch (const std::exception& error) {
    const int code = fail(kind, job ? job->rank() : launch.rank, error);
    if (job) job->fail(error);
    return code;
  }
}

}  // namespace stowage::samples
