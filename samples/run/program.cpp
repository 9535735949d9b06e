#include "samples/run/program.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <optional>
#include <string>

#include "samples/options/options.h"
#include "samples/run/job.h"
#include "samples/run/stored_model.h"
#include "samples/task/generate.h"
#include "samples/task/task.h"
#include "src/base/parallel_for.h"
#include "src/base/printable.h"
#include "src/base/standard_streams.h"
#include "src/base/temporary.h"
#include "src/device/host_limits.h"
#include "stowage/error.h"
#include "tools/console/interrupt.h"

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

void require_together(const Options& options, const StoredModel& model, const Tokenizer& tokenizer) {
  const bool bytes = options.tokenizer.empty();
  const bool has_own_tokens = model.family != &gpt_family;
  if (bytes && has_own_tokens)
    throw InvalidInput(
        fmt::format("--generate: a {} has tokens of its own, and bytes are none of them; give "
                    "its --tokenizer",
                    model.family->title));
  const bool same = bytes ? model.tokenizer.empty() : model.tokenizer == fingerprint(tokenizer);
  const bool unknown = has_own_tokens && model.tokenizer.empty();  // trained on token shards
  if (model.knows_tokenizer && !same && !unknown)
    throw InvalidInput(bytes
                           ? "--generate: the checkpoint's tokens are a tokenizer's: give --tokenizer too"
                           : fmt::format("--tokenizer {}: the checkpoint's tokens are {}", options.tokenizer,
                                         model.tokenizer.empty() ? "bytes: leave it out"
                                                                 : "another tokenizer's: give that"));
  if (model.sizes.vocabulary < tokenizer.vocabulary_size())
    throw InvalidInput(
        fmt::format("--init {}: config.json has vocab_size {}, and the tokenizer has {} tokens: "
                    "give the model's own --tokenizer",
                    options.init, model.sizes.vocabulary, tokenizer.vocabulary_size()));
}

void put(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

// Prints the prompt and its continuation by the model of --checkpoint, --resume or --init. Returns the
// program's exit code: 0, or 130 after Ctrl-C. Needs no device: the model is in host memory, in f32. Throws
// InvalidInput for a model or tokenizer that cannot be read, or that do not belong together.
int generate_text(const Options& options) {
  set_parallel_threads(options.threads);
  const std::unique_ptr<Tokenizer> tokenizer = tokenizer_of(options);
  StoredModel model = read_stored_model(options);
  require_together(options, model, *tokenizer);
  const std::string prompt = options.generate->empty() ? beginning_of_text(*tokenizer) : *options.generate;
  watch_interrupts();

  // A file gets the bytes unchanged.
  const bool terminal = ::isatty(STDOUT_FILENO) != 0;
  TerminalText shown;
  const auto emit = [&](std::string_view text) {
    put(terminal ? shown.add(text) : std::string(text));
    return !interrupted();
  };
  emit(*options.generate);
  const GenerateOptions wanted = {.prompt = prompt,
                                  .tokens = options.generated_tokens,
                                  .temperature = options.temperature,
                                  .seed = options.seed};
  generate(
      *model.family, model.sizes, *tokenizer,
      [&](const std::string& name) { return std::move(model.parameters.at(name)); }, wanted, emit);
  put(shown.finish() + "\n");
  return interrupted() ? interrupted_code : 0;
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
  if (command.help.empty() && !command.options.generate) return train(command.options, job);
  if (!job.leads()) return 0;
  if (command.help.empty()) return generate_text(command.options);
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
