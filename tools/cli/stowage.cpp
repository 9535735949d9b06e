// The stowage command. Exit codes: 0 yes, 2 no or bad input, 1 anything else.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <sstream>

#include "src/base/printable.h"
#include "src/base/standard_streams.h"
#include "src/base/temporary.h"
#include "src/device/host_limits.h"
#include "stowage/error.h"
#include "tools/cli/calibrate_command.h"
#include "tools/cli/parallel_command.h"
#include "tools/cli/place_command.h"
#include "tools/cli/plan_command.h"
#include "tools/cli/replay_command.h"
#include "tools/cli/run_command.h"
#include "tools/cli/tokens_command.h"
#include "tools/cli/unexpected.h"
#include "tools/console/interrupt.h"
#include "tools/console/terminal.h"

namespace {

using namespace stowage;

// Parses the options, and runs the command with its progress on the terminal.
template <class Raw, class Command>
int run_with_progress(const Raw& raw, int (*run_command)(const Command&, std::string&), std::string& output) {
  Command command = parse(raw);
  ProgressLine line(terminal_or_null(stderr));
  command.progress = [&line](const std::string& what) { line.show(what); };
  return run_command(command, output);
}

int run_tokens(const RawTokensOptions& raw, std::string& output) {
  if (raw.train_app->parsed()) return run_tokens_train_command(raw.train, output);
  return run_with_progress(raw, run_tokens_encode_command, output);
}

int run_parallel(const RawParallelOptions& raw, std::string& output) {
  watch_interrupts();
  return run_with_progress(raw, run_parallel_command, output);
}

int run(int count, char** arguments) {
  CLI::App app{"Stowage: plans and runs training steps in less device memory than they need", "stowage"};
  // The last of a repeated flag counts, as in train_gpt.
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.require_subcommand(1);
  RawPlanCommand raw_plan;
  RawParallelOptions raw_parallel;
  RawPlaceOptions raw_place;
  RawReplayOptions raw_replay;
  RawRunOptions raw_run;
  RawTokensOptions raw_tokens;
  CalibrateCommand calibrate_command;
  const CLI::App* plan_app = add_plan(app, raw_plan);
  const CLI::App* parallel_app = add_parallel(app, raw_parallel);
  const CLI::App* place_app = add_place(app, raw_place);
  const CLI::App* replay_app = add_replay(app, raw_replay);
  const CLI::App* run_app = add_run(app, raw_run);
  const CLI::App* tokens_app = add_tokens(app, raw_tokens);
  add_calibrate(app, calibrate_command);
  std::vector<std::string> words(arguments + 1, arguments + std::max(count, 1));
  raw_run.command.program = cut_program(words);
  std::reverse(words.begin(), words.end());  // CLI11 takes the words in reverse
  try {
    app.parse(std::move(words));
  } catch (const CLI::ParseError& error) {
    const bool asks_for_help = error.get_exit_code() == 0;
    if (!asks_for_help && !run_app->remaining().empty()) require_program(raw_run.command);
    const std::string unexpected = asks_for_help ? "" : unexpected_word(app);
    if (!unexpected.empty()) throw InvalidInput(unexpected);
    if (asks_for_help) return app.exit(error);
    std::ostringstream out, text;
    app.exit(error, out, text);
    std::fputs(printable_lines(text.str()).c_str(), stderr);
    return 2;
  }
  check_written_paths(app);
  if (run_app->parsed()) return run_run_command(parse(raw_run));
  std::string output;
  const int code = plan_app->parsed()       ? run_with_progress(raw_plan, run_plan_command, output)
                   : parallel_app->parsed() ? run_parallel(raw_parallel, output)
                   : place_app->parsed()    ? run_with_progress(raw_place, run_place_command, output)
                   : replay_app->parsed()   ? run_with_progress(raw_replay, run_replay_command, output)
                   : tokens_app->parsed()   ? run_tokens(raw_tokens, output)
                                            : run_calibrate_command(calibrate_command, output);
  std::fputs(printable_lines(output).c_str(), stdout);
  return code;
}

int fail(int code, const std::string& text) {
  std::fprintf(stderr, "stowage: %s\n", printable_message(text).c_str());
  return code;
}

}  // namespace

int main(int count, char** arguments) {
  keep_standard_streams();
  remove_temporaries_at_signals();
  try {
    const int code = run(count, arguments);
    require_printed();
    return code;
  } catch (const InvalidInput& error) {
    return fail(2, error.what());
  } catch (const OutOfMemory& error) {
    return fail(2, error.what());  // the trainers' exit code for the same mistake
  } catch (const std::exception& error) {
    if (const auto shortage = shortage_of(error)) return fail(shortage->of_limit ? 2 : 1, shortage->text);
    return fail(1, error.what());
  }
}
