#include "samples/training.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "kernels/math/bfloat16.h"
#include "samples/checkpoints.h"
#include "samples/generate.h"
#include "samples/interrupt.h"
#include "samples/model_files.h"
#include "samples/output_file.h"
#include "samples/progress.h"
#include "samples/report.h"
#include "samples/run_device.h"
#include "samples/run_history.h"
#include "samples/schedule.h"
#include "samples/step_log.h"
#include "samples/text_data.h"
#include "samples/trace.h"
#include "samples/weights_file.h"
#include "src/base/parallel_for.h"
#include "stowage/engine.h"
#include "stowage/error.h"
#include "stowage/graph_builder.h"

namespace stowage::samples {
namespace {

constexpr int interrupted_code = 130;

// stdout, at once: a pipe's reader sees lines as they come.
void print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

struct Outputs {
  explicit Outputs(const Options& options)
      : plan("--plan-json", options.plan_file, Writing::whole),
        trace("--trace", options.plan_only ? "" : options.trace_file, Writing::whole),
        report("--report", options.plan_only ? "" : options.report_file, Writing::whole),
        weights("--weights", options.plan_only ? "" : options.weights_file, Writing::whole),
        exported(options),
        log(options.plan_only ? "" : options.log_file) {}
  OutputFile plan;
  OutputFile trace;
  OutputFile report;
  OutputFile weights;
  ExportedModel exported;
  StepLog log;
};

// The same for every spelling, also of a file that is not there yet.
std::filesystem::path full_path(const std::string& path) {
  std::error_code error;
  const std::filesystem::path full =
      std::filesystem::weakly_canonical(std::filesystem::absolute(path), error);
  return error ? std::filesystem::path(path) : full;
}

// A folder that is to appear whole has no other output in it.
void check_outside(const std::string& folder, const char* flag, const std::string& path) {
  if (folder.empty() || path.empty()) return;
  const std::filesystem::path inner =
      std::filesystem::path(full_path(path)).lexically_relative(full_path(folder));
  if (inner.empty() || *inner.begin() == "..") return;
  throw InvalidInput(fmt::format("{} {}: that is in the folder of --export; name another", flag, path));
}

// No output may replace the text or another output.
void check_distinct(const Options& options) {
  struct Named {
    const char* flag;
    const std::string& path;
  };
  const std::array<Named, 6> files = {{{"--data", options.data},
                                       {"--plan-json", options.plan_file},
                                       {"--log", options.log_file},
                                       {"--trace", options.trace_file},
                                       {"--report", options.report_file},
                                       {"--weights", options.weights_file}}};
  check_outside(options.export_folder, "--checkpoint", options.checkpoint_folder);
  for (std::size_t i = 1; i < files.size(); ++i) {
    check_outside(options.export_folder, files[i].flag, files[i].path);
    for (std::size_t j = 0; j < i; ++j) {
      if (files[i].path.empty() || files[j].path.empty()) continue;
      std::error_code error;
      const bool same = full_path(files[i].path) == full_path(files[j].path) ||
                        std::filesystem::equivalent(files[i].path, files[j].path, error);
      const bool regular = std::filesystem::is_regular_file(files[i].path, error) ||
                           !std::filesystem::exists(files[i].path, error);
      if (same && regular) {
        throw InvalidInput(fmt::format("{} {}: that is the file of {} too; name another", files[i].flag,
                                       files[i].path, files[j].flag));
      }
    }
  }
}

struct Model {
  Gpt gpt;
  Graph graph;
};

Model build_model(const Options& options) {
  GraphBuilder builder(options.type);
  Model model;
  model.gpt = gpt(builder, options.model);
  model.graph = builder.finish(model.gpt.loss, optimizer_of(options));
  return model;
}

Plan plan_step(const Graph& graph, const Machine& machine, const Options& options) {
  auto planned = make_plan(graph, machine, budget_beside_copy(options, graph), options.plan);
  if (const auto* infeasible = std::get_if<Infeasible>(&planned)) {
    throw InvalidInput(infeasible_message(*infeasible, options.plan.policy));
  }
  return std::get<Plan>(std::move(planned));
}

// Ends a line that is being rewritten, whatever ends the run.
struct LineEnd {
  Progress& progress;
  ~LineEnd() { print(progress.finish()); }
};

// The model on its device, step by step.
class Trainer {
 public:
  Trainer(const Setup& setup, const Model& model, const BatchSource& batches, RunCheckpoints& checkpoints,
          RunDevice& prepared)
      : setup_(setup),
        options_(*setup.options),
        model_(model),
        batches_(batches),
        checkpoints_(checkpoints),
        device_(open_run_device(prepared, options_)),
        engine_(*device_, model.graph, *setup.plan,
                {.seed = options_.seed,
                 .initialise = options_.init.empty() && !checkpoints.resumes(),
                 .first_step = checkpoints.first_step(),
                 .verify_recompute = options_.verify,
                 .machine = setup.machine,
                 .kernels = {},
                 .host_kernels = {}}) {}

  // All steps, or up to an interrupt.
  void run(StepLog& log) {
    Progress progress({.first_step = engine_.completed_steps(),
                       .steps = options_.steps,
                       .tokens_per_step = setup_.tokens_per_step(),
                       .budget = options_.budget.device,
                       .columns = terminal_columns(stdout)});
    log.start(engine_.completed_steps());
    {
      const LineEnd line_end{progress};
      while (engine_.completed_steps() < options_.steps && !interrupted()) {
        const StepRecord record = make_step(engine_.completed_steps());
        log.write(record);
        print(progress.add(record.report));
        statistics_.add(record.report);
        recorder_.add(record);
        checkpoints_.after_step(engine_);
      }
    }
    engine_.drain();
    log.finish();
    checkpoints_.finish(engine_);
  }

  Engine& engine() { return engine_; }
  const RunStatistics& statistics() const { return statistics_; }
  const RunRecorder& recorder() const { return recorder_; }

 private:
  StepRecord make_step(std::uint64_t step) {
    batches_.fill(step, batch_);
    const std::array<InputData, 2> inputs = {
        {{model_.gpt.tokens.id, batch_.tokens}, {model_.gpt.targets.id, batch_.targets}}};
    StepRecord record;
    record.learning_rate = learning_rate(schedule_of(options_), step);
    try {
      record.report = engine_.step(inputs, {.learning_rate = record.learning_rate});
    } catch (const NonFinite& error) {
      throw Error(divergence_message(error.finding(), options_, checkpoints_.last_before(engine_)));
    }
    record.tokens_per_second = static_cast<double>(setup_.tokens_per_step()) / record.report.seconds;
    return record;
  }

  const Setup& setup_;
  const Options& options_;
  const Model& model_;
  const BatchSource& batches_;
  RunCheckpoints& checkpoints_;
  std::unique_ptr<Device> device_;
  Engine engine_;
  Batch batch_;
  RunStatistics statistics_;
  RunRecorder recorder_;
};

void write_trace(OutputFile& file, const Setup& setup, Engine& engine) {
  if (!file.wanted()) return;
  const Timeline planned = simulate(*setup.graph, *setup.plan, setup.machine);
  file.write(trace_json(*setup.graph, *setup.plan, planned.instructions, engine.last_timeline()));
  file.commit();
}

void write_report(OutputFile& file, const Setup& setup, const Trainer& trainer) {
  if (!file.wanted()) return;
  file.write(run_page(setup, trainer.statistics(), trainer.recorder()));
  file.commit();
}

// bf16 as f32, which the CPU computes in.
std::vector<std::byte> widened(std::span<const std::byte> narrow) {
  std::vector<std::byte> wide(2 * narrow.size());
  for (std::size_t i = 0; i < narrow.size(); i += sizeof(Bfloat16)) {
    Bfloat16 element;
    std::memcpy(&element, narrow.data() + i, sizeof element);
    const auto value = static_cast<float>(element);
    std::memcpy(wide.data() + 2 * i, &value, sizeof value);
  }
  return wide;
}

void print_sample(const Options& options, const Graph& graph, Engine& engine) {
  if (options.sample_bytes == 0) return;
  const ReadParameter read = [&](const std::string& name) {
    const auto found = std::find_if(graph.tensors.begin(), graph.tensors.end(),
                                    [&](const Tensor& tensor) { return tensor.name == name; });
    std::vector<std::byte> value = engine.read(static_cast<TensorId>(found - graph.tensors.begin()));
    return found->type == DataType::bf16 ? widened(value) : value;
  };
  print(fmt::format("\n{} bytes from the model, temperature 0.8:\n\n", options.sample_bytes));
  const GenerateOptions wanted = {
      .prompt = "\n", .bytes = options.sample_bytes, .temperature = 0.8, .seed = options.seed};
  generate(options.model, read, wanted, [](unsigned char byte) {
    print(escaped(byte));
    return !interrupted();
  });
  print("\n");
}

BatchSource open_batches(const std::string& text, const Options& options) {
  try {
    return {text, options.model.batch, options.model.sequence, options.seed};
  } catch (const InvalidInput& error) {
    throw InvalidInput(fmt::format("--data {}: {}", options.data, error.what()));
  }
}

}  // namespace

int train(const Options& given) {
  Options options = given;
  set_parallel_threads(options.threads);
  check_distinct(options);
  const std::string text = read_text(options.data);
  const BatchSource batches = open_batches(text, options);
  watch_interrupts();
  Outputs outputs(options);
  Model model = build_model(options);
  const InitialModel initial(options, model.graph);
  RunCheckpoints checkpoints(options, text, model.graph);
  RunDevice prepared = prepare_device(options);
  if (!prepared.profile.empty()) set_seconds(prepared.profile, prepared.machine, model.graph);

  Setup setup;
  setup.options = &options;
  setup.graph = &model.graph;
  setup.machine = prepared.machine;
  setup.device = prepared.which;
  setup.planned_for = prepared.planned_for;
  const Plan plan = plan_step(model.graph, setup.machine, options);
  setup.plan = &plan;
  setup.text_bytes = text.size();
  setup.bigram_entropy = bigram_entropy(text);
  const Bytes overhead = setup.machine.overhead_bytes;
  setup.need = need_bytes(model.graph, setup.machine) + overhead;
  setup.minimum = minimum_bytes(model.graph, setup.machine, options.plan) + overhead;
  print(setup_table(setup));
  outputs.plan.write(to_json(plan));
  outputs.plan.commit();
  if (options.plan_only) return 0;
  if (interrupted()) return interrupted_code;

  print("\n");
  Trainer trainer(setup, model, batches, checkpoints, prepared);
  if (!checkpoints.resumes()) print(initial.load(model.graph, trainer.engine()));
  print(checkpoints.begin(trainer.engine()));
  trainer.run(outputs.log);
  if (trainer.statistics().steps() > 0) print('\n' + summary(setup, trainer.statistics()));
  write_trace(outputs.trace, setup, trainer.engine());
  write_report(outputs.report, setup, trainer);
  write_weights(outputs.weights, model.graph, [&](TensorId id) { return trainer.engine().read(id); });
  print(outputs.exported.write(model.graph, trainer.engine()));
  if (!interrupted()) print_sample(options, model.graph, trainer.engine());
  if (interrupted())
    print("\nstopped by Ctrl-C; what was asked for is written as of the last finished step\n");
  checkpoints.require_saved();
  return interrupted() ? interrupted_code : 0;
}

}  // namespace stowage::samples
