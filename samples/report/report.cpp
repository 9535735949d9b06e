#include "samples/report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/device/host_limits.h"
#include "src/models/require_valid.h"
#include "stowage/coded_activations.h"
#include "tools/answer/plan_answer.h"
#include "tools/console/text.h"

namespace stowage::samples {
namespace {

const char* assumed_unless(bool measured) {
  return measured ? "" : " (assumed: every op was bound otherwise)";
}

void add_model_lines(Lines& lines, const Setup& setup) {
  const ModelConfig& model = setup.options->model;
  lines.add("model", "{} layers, width {}, heads {}: {} parameters, {}", model.layers, model.width,
            model.heads, grouped(parameter_count(*setup.model).all), to_string(setup.options->type));
  lines.add("step", "{} samples of {} {}: {} tokens", model.batch, model.sequence, setup.data.unit,
            grouped(setup.tokens_per_step()));
  if (setup.options->epochs)
    lines.add("epochs", "{} of {} samples: {} steps", *setup.options->epochs, grouped(setup.epoch_samples),
              grouped(setup.options->steps));
  if (setup.graph->micro_batches > 1)
    lines.add("  in", "{}", micro_batches_text(*setup.graph, setup.plan->order));
  if (const ModelConfig& model = setup.options->model; kept_tokens(model) < model.sequence)
    lines.add("  MLPs", "work on {} of the {} tokens of each sample (--keep-tokens)", kept_tokens(model),
              model.sequence);
  if (const auto bits = setup.options->model.code_activations)
    lines.add("  codes", "large activations in {} bits an element for backward (--code-activations)",
              coding_word(bits));
  lines.add("text", "{}", setup.data.text);
  lines.add("device", "{}", setup.device);
  if (setup.options->devices > 1)
    lines.add("devices", "{}: 1/{} of batch, parameters and state on each; bytes below are those of each",
              setup.options->devices, setup.options->devices);
  lines.add(setup.options->machine.empty() ? "calibrated" : "machine",
            "{:.0f} GFLOP/s in matrices{}, {:.1f} GB/s elsewhere{}, optimizer {:.1f} GB/s",
            setup.machine.flops_per_second / 1e9, assumed_unless(setup.fitted.arithmetic),
            setup.machine.device_bytes_per_second / 1e9, assumed_unless(setup.fitted.memory),
            setup.machine.host_bytes_per_second / 1e9);
}

void add_memory_lines(Lines& lines, const Setup& setup) {
  const Plan& plan = *setup.plan;
  add_need(lines, {setup.need, setup.minimum, setup.options->budget.device, setup.machine.overhead_bytes, 0});
  lines.add("plan", "peak {} ({} bytes), {} of the need; host {}, of it {} pinned", format_bytes(setup.peak),
            setup.peak, share(setup.peak, setup.need), format_bytes(plan.host_bytes),
            format_bytes(plan.pinned_bytes));
  lines.add("  on host", "{}", host_text(host_tally(*setup.graph, plan), parameter_count(*setup.graph).all));
}

void add_plan_lines(Lines& lines, const Setup& setup) {
  const Plan& plan = *setup.plan;
  if (setup.options->plan.policy != Policy::automatic) lines.add("  policy", "{}", policy_label(plan.policy));
  add_tally(lines, tally(*setup.graph, plan), plan.bucket_bytes);
  lines.add("  traffic", "{} in, {} out per step", format_bytes(plan.h2d_bytes),
            format_bytes(plan.d2h_bytes));
}

// Adds, under a prediction, the machine that it is for, if the run is on another one.
void add_planned_for(Lines& lines, const Setup& setup) {
  if (!setup.planned_for.empty())
    lines.add("  for", "{}; this run is not on that machine, its times will differ", setup.planned_for);
}

void add_prediction_lines(Lines& lines, const Setup& setup) {
  const Plan& plan = *setup.plan;
  const double step = plan.predicted_step_seconds;
  lines.add("predicted", "{} per step, {} tokens/s, planned stall {:.1f}%", format_seconds(step),
            grouped(static_cast<std::uint64_t>(static_cast<double>(setup.tokens_per_step()) / step)),
            100 * plan.predicted_stall_seconds / step);
  add_planned_for(lines, setup);
  if (plan.undo_bytes > 0) add_clipped(lines, plan.half_clipped_seconds, plan.clipped_seconds);
  lines.add("lower bound", "{} per step for any plan in this budget, bound by {}",
            format_seconds(plan.lower_bound_seconds), plan.bound_by);
  add_host_traffic(lines, plan.bound_by, host_traffic(*setup.graph, plan, setup.machine.peer_path),
                   setup.machine.host_total_bytes_per_second);
  if (!setup.evaluation.empty()) lines.add("evaluation", "{}", setup.evaluation);
}

void add_loss_line(Lines& lines, const DataDescription& data, const RunStatistics& run) {
  const double loss = run.last_mean_loss();
  std::string note;
  if (!data.loss_of.empty()) note = "; " + data.loss_of;
  if (const auto& yardstick = data.yardstick)
    note = fmt::format("; {} {:.4f}: {}", yardstick->name, yardstick->nats,
                       loss < yardstick->nats ? yardstick->below : yardstick->above);
  lines.add("loss", "{:.4f} nats, mean of the last {} steps{}", loss, run.last_losses(), note);
}

void add_attention_lines(Lines& lines, const AttentionUse& use) {
  if (attention_methods(use).empty()) return;
  lines.add("attention", "{} launches of cuDNN, {} of our own kernels for 16 bits, {} of those for f32",
            grouped(use.cudnn), grouped(use.own), grouped(use.plain));
  for (const std::string& refusal : use.refusals) lines.add("  slower", "{}", refusal);
}

// Interpolates between the plan's step times for no, half and all steps clipped, by the run's share of
// clipped steps.
double predicted_seconds(const Plan& plan, const RunStatistics& run) {
  if (run.steps() == 0) return plan.predicted_step_seconds;
  const double clipped = static_cast<double>(run.clipped_steps()) / static_cast<double>(run.steps());
  return clipped < 0.5 ? std::lerp(plan.predicted_step_seconds, plan.half_clipped_seconds, 2 * clipped)
                       : std::lerp(plan.half_clipped_seconds, plan.clipped_seconds, 2 * clipped - 1);
}

// The rate of pageable memory that costs are estimated for, as a share of the link's. This share is an
// assumption, not a measurement.
constexpr double pageable_share = 0.5;

double pageable_seconds(const Unpinned& unpinned, const Machine& machine) {
  return (static_cast<double>(unpinned.in_bytes) / machine.h2d.bytes_per_second +
          static_cast<double>(unpinned.out_bytes) / machine.d2h.bytes_per_second) /
         pageable_share;
}

}  // namespace

std::string setup_table(const Setup& setup) {
  Lines lines;
  add_model_lines(lines, setup);
  lines.gap();
  add_memory_lines(lines, setup);
  add_plan_lines(lines, setup);
  lines.gap();
  add_prediction_lines(lines, setup);
  return std::move(lines).text();
}

void RunStatistics::add(const StepReport& report) {
  losses_[steps_ % window] = report.loss;
  ++steps_;
  seconds_ += report.seconds;
  between_seconds_ += report.idle_seconds;
  if (steps_ == start_up + 1) steady_seconds_ = steady_stall_ = steady_collectives_ = 0;
  steady_seconds_ += report.seconds;
  steady_stall_ += report.seconds * report.stall_fraction;
  steady_collectives_ += report.collective_seconds;
  device_peak_bytes_ = std::max(device_peak_bytes_, report.device_peak_bytes);
  h2d_bytes_ = report.h2d_bytes;
  d2h_bytes_ = report.d2h_bytes;
  peer_bytes_ = report.peer_bytes;
  verified_replays_ += report.verified_replays;
  speculated_updates_ += report.speculated_updates;
  if (report.clip_scale == 1 && !report.overflowed) return;
  ++(report.overflowed ? overflowed_steps_ : clipped_steps_);
  undone_updates_ += report.speculated_updates;
}

void RunStatistics::add(const AttentionUse& step) {
  attention_.cudnn += step.cudnn;
  attention_.own += step.own;
  attention_.plain += step.plain;
  attention_.refusals = step.refusals;
}

std::string attention_methods(const AttentionUse& use) {
  std::string methods;
  const auto add = [&](std::uint64_t launches, const char* name) {
    if (launches > 0) methods += (methods.empty() ? "" : "+") + std::string(name);
  };
  add(use.cudnn, "cudnn");
  add(use.own, "own");
  add(use.plain, "plain");
  return methods;
}

std::uint64_t RunStatistics::last_losses() const { return std::min(steps_, window); }

double RunStatistics::last_mean_loss() const {
  const std::uint64_t count = last_losses();
  if (count == 0) return std::numeric_limits<double>::quiet_NaN();
  double sum = 0;
  for (std::uint64_t i = 0; i < count; ++i) sum += losses_[i];
  return sum / static_cast<double>(count);
}

double RunStatistics::step_seconds() const {
  return steps_ == 0 ? 0 : steady_seconds_ / static_cast<double>(steady_steps());
}

double RunStatistics::collective_seconds() const {
  return steps_ == 0 ? 0 : steady_collectives_ / static_cast<double>(steady_steps());
}

double RunStatistics::stall_fraction() const {
  return steady_seconds_ > 0 ? steady_stall_ / steady_seconds_ : 0;
}

std::string summary(const Setup& setup, const RunStatistics& run) {
  const Plan& plan = *setup.plan;
  const double step = run.step_seconds();
  const double tokens = static_cast<double>(setup.tokens_per_step());
  Lines lines;
  add_loss_line(lines, setup.data, run);
  const StartSeconds& start = setup.start;
  lines.add("start", "{} for the device, {} to plan, {} for memory ({} of it to pin) and weights",
            format_seconds(start.device), format_seconds(start.plan), format_seconds(start.engine),
            format_seconds(start.pinning));
  lines.add("steps", "{} in {}, {} tokens/s", grouped(run.steps()), format_seconds(run.seconds()),
            grouped(static_cast<std::uint64_t>(step > 0 ? tokens / step : 0)));
  if (run.between_seconds() > 0)
    lines.add("between", "{} between steps: evaluation, checkpoints", format_seconds(run.between_seconds()));
  const double predicted = predicted_seconds(plan, run);
  lines.add("step time", "{}; predicted {} ({:+.1f}%), {:.2f}x the lower bound ({})", format_seconds(step),
            format_seconds(predicted), 100 * (predicted / step - 1), step / plan.lower_bound_seconds,
            plan.bound_by);
  add_planned_for(lines, setup);
  lines.add("  stall", "measured {:.1f}%, planned {:.1f}%", 100 * run.stall_fraction(),
            100 * plan.predicted_stall_seconds / plan.predicted_step_seconds);
  const Bytes budget = setup.options->budget.device;
  const Bytes peak = setup.machine.budget_for(run.device_peak_bytes());
  lines.add("device peak", "{} bytes touched, {} planned, budget {}; {} of the need", peak, setup.peak,
            budget == unlimited ? "unlimited" : fmt::format("{} bytes", budget), share(peak, setup.need));
  lines.add("traffic", "{} in and {} out per step; planned {} and {}", format_bytes(run.h2d_bytes()),
            format_bytes(run.d2h_bytes()), format_bytes(plan.h2d_bytes), format_bytes(plan.d2h_bytes));
  lines.add("clipped", "{} of {} steps", grouped(run.clipped_steps()), grouped(run.steps()));
  if (setup.options->type == DataType::f16)
    lines.add("overflowed", "{} of {} steps, which changed no weight", grouped(run.overflowed_steps()),
              grouped(run.steps()));
  if (plan.undo_bytes > 0)
    lines.add("  updates", "{} began before the gate, of them {} were taken back and made again",
              grouped(run.speculated_updates()), grouped(run.undone_updates()));
  add_attention_lines(lines, run.attention());
  if (!run.codes().empty()) lines.add("codes", "{}", run.codes());
  if (setup.options->verify)
    lines.add("verified", "{} replays, each with the bits of its op's first launch",
              grouped(run.verified_replays()));
  return std::move(lines).text();
}

std::string divergence_message(const std::string& finding, const Options& options,
                               const std::string& checkpoint) {
  const std::string clip = options.plan.optimizer_in_backward
                               ? "clip gradients with --clip 1 in place of --optimizer-in-backward"
                           : options.clip == 0 ? "clip gradients with --clip 1"
                                               : fmt::format("--clip (now {})", options.clip);
  const std::string from =
      checkpoint.empty()
          ? ", and begin again: there is no checkpoint from before"
          : fmt::format(", and go on from before with --resume {}, or an earlier one", checkpoint);
  return fmt::format("{}; the training has diverged: lower --learning-rate (now {}), or {}{}", finding,
                     options.learning_rate, clip, from);
}

std::string divergence_message(const NonFinite::Finding& finding, const Options& options,
                               const std::string& checkpoint) {
  const std::string text = fmt::format("step {}: {}", finding.step + 1, finding.text);
  if (finding.origin != NonFinite::Origin::unknown) return divergence_message(text, options, checkpoint);
  return text + (checkpoint.empty() ? "; begin again" : "; go on with --resume " + checkpoint);
}

std::string infeasible_message(const Infeasible& infeasible, Policy policy) {
  const char* flag = infeasible.host ? "--host-memory" : "--device-memory";
  return fmt::format(
      "{} {}: {}too small; the smallest that works is {}{} bytes ({}){}: give {} {}", flag, infeasible.budget,
      policy == Policy::automatic ? "" : fmt::format("with --policy {} ", to_string(policy)),
      infeasible.at_most ? "at most " : "", infeasible.minimum, format_bytes(infeasible.minimum),
      infeasible.host ? "" : fmt::format(", which op {} needs", infeasible.op), flag, infeasible.minimum);
}

Unpinned unpinned_of(const Plan& plan, std::span<const BucketId> buckets) {
  Unpinned result;
  bool ring = false;  // whether the gradient ring is among the buckets
  for (const BucketId id : buckets) {
    ring |= plan.buckets[id].in_ring();
    if (!plan.buckets[id].in_ring()) result.bytes += plan.buckets[id].bytes;
  }
  if (ring) result.bytes += plan.ring_bytes;
  for (const Instruction& each : plan.instructions) {
    if (!is_transfer(each.kind)) continue;
    const BucketId moved = plan.lifetimes[each.lifetime].bucket;
    if (std::find(buckets.begin(), buckets.end(), moved) == buckets.end()) continue;
    Bytes& bytes = each.kind == InstructionKind::prefetch ? result.in_bytes : result.out_bytes;
    bytes += moved_bytes(plan, each).bytes();
  }
  return result;
}

std::string unpinned_note(const Plan& plan, const Machine& machine, std::span<const BucketId> buckets) {
  if (buckets.empty()) return "";
  const Unpinned unpinned = unpinned_of(plan, buckets);
  Lines lines;
  lines.add("unpinned",
            "{} ({} bytes) of {} could not be page-locked and are ordinary memory; the numbers stay the same",
            format_bytes(unpinned.bytes), unpinned.bytes, format_bytes(plan.pinned_bytes));
  lines.add("  cost",
            "{} of it in and {} out per step; a card moves it slower than page-locked memory, and nothing "
            "beside it: {} of each step, if at half the link's rate",
            format_bytes(unpinned.in_bytes), format_bytes(unpinned.out_bytes),
            format_seconds(pageable_seconds(unpinned, machine)));
  const auto locked = locked_memory_limit();
  lines.add(
      "  instead",
      "free memory of the host, or plan for less of it with --host-memory{}; --pageable never ends a run "
      "here",
      locked ? ", or raise `ulimit -l` (" + format_bytes(*locked) + ") where the driver goes by it" : "");
  lines.gap();
  return std::move(lines).text();
}

}  // namespace stowage::samples
