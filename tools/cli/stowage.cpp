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
#include "tools/cli/place_command.h"
#include "tools/cli/plan_command.h"
#include "tools/cli/replay_command.h"
#include "tools/cli/run_command.h"
#include "tools/cli/tokens_command.h"
#include "tools/cli/unexpected.h"
#include "tools/console/terminal.h"

namespace {

int plan(const stowage::PlanWords& words, std::string& output) {
  stowage::PlanCommand command = stowage::parse(words);
  stowage::ProgressLine line(stowage::terminal_or_null(stderr));
  command.progress = [&line](const std::string& what) { line.show(what); };
  return stowage::run_plan_command(command, output);
}

int place(const stowage::RawPlaceOptions& words, std::string& output) {
  stowage::PlaceCommand command = stowage::parse(words);
  stowage::ProgressLine line(stowage::terminal_or_null(stderr));
  command.progress = [&line](const std::string& what) { line.show(what); };
  return stowage::run_place_command(command, output);
}

int replay(const stowage::RawReplayOptions& words, std::string& output) {
  stowage::ReplayCommand command = stowage::parse(words);
  stowage::ProgressLine line(stowage::terminal_or_null(stderr));
  command.progress = [&line](const std::string& what) { line.show(what); };
  return stowage::run_replay_command(command, output);
}

int tokens(const stowage::RawTokensOptions& words, std::string& output) {
  if (words.train_app->parsed()) return stowage::run_tokens_train_command(words.train, output);
  stowage::TokensEncodeCommand command = stowage::parse(words);
  stowage::ProgressLine line(stowage::terminal_or_null(stderr));
  command.progress = [&line](const std::string& what) { line.show(what); };
  return stowage::run_tokens_encode_command(command, output);
}

CLI::App* add_calibrate(CLI::App& app, stowage::CalibrateCommand& command) {
  CLI::App* calibrate =
      app.add_subcommand("calibrate", "Measures this machine for plan --machine and train_gpt --machine");
  calibrate->add_option("--device", command.device, "auto, cuda, cuda:N or simulated")->capture_default_str();
  calibrate
      ->add_option("--devices", command.devices,
                   "so many of them: also what they receive from each other, and what their links leave "
                   "to each other")
      ->capture_default_str();
  calibrate->add_flag("--quick", command.quick, "in less than a second instead of some twenty");
  calibrate->add_option("--link", command.link,
                        "the simulated device's link, each way: RATE or unthrottled (8GB/s)");
  calibrate->add_option("--output", command.output_file,
                        "write the machine's file here (left out: where `--machine here` reads it)");
  return calibrate;
}

int run(int count, char** arguments) {
  CLI::App app{"Stowage: plans and runs training steps in less device memory than they need", "stowage"};
  // As in train_gpt the last of a repeated flag counts.
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.require_subcommand(1);
  stowage::PlanWords plan_words;
  stowage::RawPlaceOptions place_words;
  stowage::RawReplayOptions replay_words;
  stowage::RawRunOptions run_words;
  stowage::RawTokensOptions tokens_words;
  stowage::CalibrateCommand calibrate_command;
  const CLI::App* plan_app = stowage::add_plan(app, plan_words);
  const CLI::App* place_app = stowage::add_place(app, place_words);
  const CLI::App* replay_app = stowage::add_replay(app, replay_words);
  const CLI::App* run_app = stowage::add_run(app, run_words);
  const CLI::App* tokens_app = stowage::add_tokens(app, tokens_words);
  add_calibrate(app, calibrate_command);
  std::vector<std::string> words(arguments + 1, arguments + std::max(count, 1));
  run_words.command.program = stowage::cut_program(words);
  std::reverse(words.begin(), words.end());  // as CLI11 takes them
  try {
    app.parse(std::move(words));
  } catch (const CLI::ParseError& error) {
    const bool asks_for_help = error.get_exit_code() == 0;
    if (!asks_for_help && !run_app->remaining().empty()) stowage::require_program(run_words.command);
    const std::string unexpected = asks_for_help ? "" : stowage::unexpected_word(app);
    if (!unexpected.empty()) throw stowage::InvalidInput(unexpected);
    if (asks_for_help) return app.exit(error);
    std::ostringstream out, text;
    app.exit(error, out, text);
    std::fputs(stowage::printable_lines(text.str()).c_str(), stderr);
    return 2;
  }
  stowage::check_written_paths(app);
  if (run_app->parsed()) return stowage::run_run_command(stowage::parse(run_words));
  std::string output;
  const int code = plan_app->parsed()     ? plan(plan_words, output)
                   : place_app->parsed()  ? place(place_words, output)
                   : replay_app->parsed() ? replay(replay_words, output)
                   : tokens_app->parsed() ? tokens(tokens_words, output)
                                          : stowage::run_calibrate_command(calibrate_command, output);
  std::fputs(stowage::printable_lines(output).c_str(), stdout);
  return code;
}

int fail(int code, const std::string& text) {
  std::fprintf(stderr, "stowage: %s\n", stowage::printable_message(text).c_str());
  return code;
}

}  // namespace

int main(int count, char** arguments) {
  stowage::keep_standard_streams();
  stowage::remove_temporaries_at_signals();
  try {
    const int code = run(count, arguments);
    stowage::require_printed();
    return code;
  } catch (const stowage::InvalidInput& error) {
    return fail(2, error.what());
  } catch (const stowage::OutOfMemory& error) {
    return fail(2, error.what());  // as the trainers have it
  } catch (const std::exception& error) {
    if (const auto shortage = stowage::shortage_of(error))
      return fail(shortage->of_limit ? 2 : 1, shortage->text);
    return fail(1, error.what());
  }
}
