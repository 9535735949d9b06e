#include "tools/answer/parallel_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "src/base/printable.h"
#include "stowage/error.h"
#include "tools/answer/parallel_schedules.h"

namespace stowage {
namespace {

constexpr double microseconds_of_second = 1e6;  // the trace's unit

std::int64_t most_traced_micro_batches(std::int64_t stages) {
  return (most_traced_events / stages - 1) / 2;  // forward and backward, and one exchange
}

class StepTrace {
 public:
  void name_row(std::size_t stage, const std::string& name) {
    add(R"({{"ph":"M","name":"thread_name","pid":0,"tid":{},"args":{{"name":{}}}}})", stage,
        nlohmann::json(name).dump());
  }
  void add_span(std::size_t stage, const std::string& name, double begin_seconds, double end_seconds) {
    add(R"({{"ph":"X","name":"{}","pid":0,"tid":{},"ts":{},"dur":{}}})", name, stage,
        begin_seconds * microseconds_of_second, (end_seconds - begin_seconds) * microseconds_of_second);
  }
  std::string text() && { return std::move(text_) + "\n]}\n"; }

 private:
  template <class... Arguments>
  void add(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    text_ += first_ ? "\n" : ",\n";
    first_ = false;
    fmt::format_to(std::back_inserter(text_), format, std::forward<Arguments>(arguments)...);
  }

  std::string text_ = R"({"displayTimeUnit":"ms","traceEvents":[)";
  bool first_ = true;
};

}  // namespace

void require_traceable(const ParallelCosts& costs) {
  const std::int64_t stages = std::min<std::int64_t>(std::ssize(costs.layers), costs.devices);
  if (costs.micro_batches <= most_traced_micro_batches(stages)) return;
  throw InvalidInput(
      fmt::format("{} micro-batches in up to {} stages may be more than {} events; give at most "
                  "{} micro-batches in the file",
                  costs.micro_batches, stages, most_traced_events, most_traced_micro_batches(stages)));
}

std::string trace_of_pipeline(PipelineQuestion question, const std::vector<std::string>& names,
                              const std::vector<double>& tail_seconds, const std::string& tail) {
  question.keep_events = true;
  StepTrace trace;
  std::vector<double> ends(names.size(), 0);
  for (std::size_t s = 0; s < names.size(); ++s) trace.name_row(s, fmt::format("stage {}: {}", s, names[s]));
  for (const PipelineEvent& event : simulate_pipeline(question).events) {
    const std::size_t stage = static_cast<std::size_t>(event.stage);
    std::string name = fmt::format("{} {}", event.backward ? "backward" : "forward", event.micro_batch);
    if (question.virtual_stages > 1) name += fmt::format(", range {}", event.chunk);
    trace.add_span(stage, name, event.begin_seconds, event.end_seconds);
    ends[stage] = event.end_seconds;
  }
  for (std::size_t s = 0; s < names.size(); ++s)
    if (tail_seconds[s] > 0) trace.add_span(s, tail, ends[s], ends[s] + tail_seconds[s]);
  return std::move(trace).text();
}

std::string trace_of_step(const ParallelCosts& costs, const ParallelAnswer& answer) {
  require_traceable(costs);
  const ParallelCandidate& best = answer.best();
  std::vector<std::string> names;
  std::vector<double> exchanges;
  for (std::size_t s = 0; s < best.stages.size(); ++s) {
    const PlacedStage& stage = best.pipeline.stages[s];
    const auto name = [&](int layer) {
      return printable(costs.layers[static_cast<std::size_t>(layer)].name);
    };
    names.push_back(fmt::format("{} .. {}", name(stage.first), name(stage.last - 1)));
    exchanges.push_back(best.stages[s].exchange_seconds);
  }
  return trace_of_pipeline(simulation_of(costs, best), names, exchanges, "exchange of gradients");
}

}  // namespace stowage
