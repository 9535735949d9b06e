#include "tools/cli/replay_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "src/history/histories.h"
#include "stowage/error.h"
#include "tools/cli/buffers_csv.h"
#include "tools/cli/files.h"
#include "tools/console/text.h"
#include "tools/replay/caching_model.h"
#include "tools/replay/pytorch_model.h"
#include "tools/replay/replay.h"

namespace stowage {
namespace {

constexpr std::uintmax_t largest_trace = std::uintmax_t{1} << 30U;
constexpr std::size_t iterations_of_lifetimes = 3;

struct PolicyAnswer {
  std::string policy;
  ReplayResult result;
  ReplayPeaks peaks;  // peaks to show
  double nanoseconds = 0;
};

// Returns the simulated device's memory: at most `limit`, and little more than any policy needs, because a
// larger device is slower to open.
Bytes device_bytes(const AllocationTrace& trace, Bytes limit) {
  constexpr Bytes most_live = Bytes{1} << 48U;
  return std::min(limit, 1_GiB + 8 * std::min(most_live, peak_live_bytes(trace)));
}

MakeModel maker_of(const std::string& policy, const AllocationTrace& trace, Bytes limit) {
  const auto pytorch = [limit](bool expandable) -> std::unique_ptr<AllocatorModel> {
    return std::make_unique<PytorchModel>(PytorchOptions{expandable, limit});
  };
  if (policy == "pytorch") return [pytorch] { return pytorch(false); };
  if (policy == "pytorch-expandable") return [pytorch] { return pytorch(true); };
  const Bytes device = device_bytes(trace, limit);
  const bool plans = policy == "planned";
  return [device, plans] { return std::make_unique<CachingModel>(device, plans); };
}

std::vector<std::string> policies_of(const std::string& word) {
  const std::vector<std::string>& all = replay_policies();
  if (word == "all") return all;
  if (std::find(all.begin(), all.end(), word) == all.end()) {
    throw InvalidInput(
        fmt::format("--policy: '{}' is no policy; give {} or all", word, fmt::join(all, ", ")));
  }
  return {word};
}

AllocationTrace read_trace(const std::string& file) {
  const std::string text = read_file(
      file, largest_trace,
      "a CSV file with id, lower, upper and size, a history, a log of RMM, or a record of stowage run");
  if (is_history(text)) return parse_history(text, file);
  if (is_allocator_history(text)) return parse_allocator_history(text, file);
  if (is_call_record(text)) return parse_call_record(text, file);
  if (is_rmm_log(text)) return parse_rmm_log(text, file);
  const Buffers buffers = parse_buffers(text, file);
  return repeated(trace_of_lifetimes(buffers.items), iterations_of_lifetimes);
}

PolicyAnswer answer_of(const AllocationTrace& trace, const std::string& policy, Bytes limit) {
  const MakeModel make_model = maker_of(policy, trace, limit);
  PolicyAnswer answer;
  answer.policy = policy;
  answer.result = replay(trace, *make_model());
  answer.peaks = answer.result.warm.operations > 0 ? answer.result.warm : answer.result.all;
  if (!answer.result.out_of_memory) answer.nanoseconds = nanoseconds_per_operation(trace, make_model);
  return answer;
}

nlohmann::ordered_json json_of(const PolicyAnswer& answer, const AllocationTrace& trace) {
  const ReplayResult& result = answer.result;
  nlohmann::ordered_json json{{"policy", answer.policy},
                              {"operations", answer.peaks.operations},
                              {"peak_live_bytes", answer.peaks.live_bytes},
                              {"peak_reserved_bytes", answer.peaks.reserved_bytes},
                              {"ratio", answer.peaks.ratio()},
                              {"nanoseconds_per_operation", answer.nanoseconds},
                              {"iterations", trace.iterations.size()},
                              {"warm", result.warm.operations > 0},
                              {"first_peak_live_bytes", result.first.live_bytes},
                              {"first_peak_reserved_bytes", result.first.reserved_bytes},
                              {"out_of_memory", result.out_of_memory}};
  if (result.out_of_memory) json["error"] = result.error;
  return json;
}

std::string table_of(const std::vector<PolicyAnswer>& answers) {
  constexpr std::string_view row = "{:<18}  {:>10}  {:>15}  {:>19}  {:>6}  {:>25}\n";
  std::string text = fmt::format(fmt::runtime(row), "policy", "operations", "peak_live_bytes",
                                 "peak_reserved_bytes", "ratio", "nanoseconds_per_operation");
  for (const PolicyAnswer& answer : answers) {
    const std::string time =
        answer.result.out_of_memory ? "out of memory" : fmt::format("{:.1f}", answer.nanoseconds);
    text += fmt::format(fmt::runtime(row), answer.policy, answer.peaks.operations, answer.peaks.live_bytes,
                        answer.peaks.reserved_bytes, fmt::format("{:.4f}", answer.peaks.ratio()), time);
  }
  return text;
}

}  // namespace

CLI::App* add_replay(CLI::App& app, RawReplayOptions& raw) {
  CLI::App* replay =
      app.add_subcommand("replay", "What allocators would hold for a program's allocations, and how fast");
  replay->footer(
      "FILE has the columns id, lower, upper and size, in any order: allocated at lower, freed at upper, "
      "frees\n"
      "first at equal times. It is one iteration, and is replayed three times over. Or it is a recorded "
      "history\n"
      "(docs/history.md), or what stowage run --record wrote, replayed once.\n"
      "stowage: this library's caching allocator, on a simulated device whose mapping of memory is in its "
      "times.\n"
      "planned: iterations that come again get fixed offsets, the rest goes there; shown from its first plan "
      "on.\n"
      "pytorch, pytorch-expandable: models of PyTorch's caching allocator, without and with expandable "
      "segments;\n"
      "their times are those of the models, without any call of a device.\n"
      "Times are of the second and later iterations, or of all where a history has no iterations.\n"
      "SIZE is 64MiB, 1.5G (binary), 10MB (decimal) or plain bytes.\n"
      "Exit code: 0, or 2 where a policy runs out of memory, or the command line or the file must change.");
  replay->get_formatter()->column_width(34);
  ReplayCommand& command = raw.command;
  replay
      ->add_option("FILE", command.file,
                   "lifetimes as CSV, a history as JSON Lines, or a record of stowage run")
      ->required()
      ->type_name("");
  replay->add_option("--policy", command.policy, fmt::format("{} or all", fmt::join(replay_policies(), ", ")))
      ->type_name("POLICY")
      ->capture_default_str();
  replay->add_option("--limit", raw.limit, "what the device has (as much as is asked for)")
      ->type_name("SIZE");
  replay->add_flag("--json", command.json, "answer as JSON");
  return replay;
}

ReplayCommand parse(const RawReplayOptions& raw) {
  ReplayCommand command = raw.command;
  if (!raw.limit.empty()) command.limit = with_prefix("--limit: ", [&] { return parse_bytes(raw.limit); });
  return command;
}

const std::vector<std::string>& replay_policies() {
  static const std::vector<std::string> policies{"stowage", "planned", "pytorch", "pytorch-expandable"};
  return policies;
}

int run_replay_command(const ReplayCommand& command, std::string& output) {
  const std::vector<std::string> policies = policies_of(command.policy);
  if (command.limit == 0)
    throw InvalidInput("--limit: nothing fits in 0 bytes; give at least 1, or leave it out");
  const AllocationTrace trace = read_trace(command.file);
  std::vector<PolicyAnswer> answers;
  for (const std::string& policy : policies) {
    command.progress(policy);
    answers.push_back(answer_of(trace, policy, command.limit));
  }
  if (command.json) {
    nlohmann::ordered_json all = nlohmann::ordered_json::array();
    for (const PolicyAnswer& answer : answers) all.push_back(json_of(answer, trace));
    output += (command.policy == "all" ? all : all.front()).dump(2) + '\n';
  } else {
    output += table_of(answers);
  }
  const bool all_fit = std::none_of(answers.begin(), answers.end(),
                                    [](const PolicyAnswer& answer) { return answer.result.out_of_memory; });
  return all_fit ? 0 : 2;
}

}  // namespace stowage
