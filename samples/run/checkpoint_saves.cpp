// What a run saves, and when it ends for want of progress: the second half of RunCheckpoints.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "samples/report/report.h"
#include "samples/run/checkpoints.h"
#include "src/base/printable.h"
#include "src/graph/finite.h"
#include "stowage/error.h"
#include "tools/console/text.h"

namespace stowage::samples {
namespace {

// Most bytes that are written to measure the disk: a second on a slow one.
constexpr Bytes rate_bytes = 64_MiB;

}  // namespace

void RunCheckpoints::start_saver() {
  saver_.emplace(*folder_, *graph_, options_.checkpoint_blocking ? Saving::blocking : Saving::background);
  notes_ += fmt::format("checkpoints   {}: every {} steps, the last {}{} kept; {}\n", folder_->path(),
                        options_.checkpoint_every, options_.keep, options_.keep_best ? " and the best" : "",
                        options_.checkpoint_blocking
                            ? "steps wait for them"
                            : "a copy of " + format_bytes(saver_->copy_bytes()) + " on the host");
  if (first_step() < options_.steps) notes_ += size_and_time();
}

// Returns a line about each checkpoint, before the first one is written.
std::string RunCheckpoints::size_and_time() const {
  CheckpointState state = state_at(first_step());
  state.tensors = checkpoint_tensors(*graph_);
  const Bytes bytes = checkpoint_disk_bytes(std::move(state));
  const std::string size = fmt::format("              each {}", exact(bytes));
  const Bytes tried = std::min(bytes, rate_bytes);
  try {
    const double rate = static_cast<double>(tried) / folder_->measure_write(tried);
    return fmt::format("{}, about {} at {:.3g} MB/s, measured by writing {} there\n", size,
                       format_seconds(static_cast<double>(bytes) / rate), rate / 1e6, format_bytes(tried));
  } catch (const Error& error) {
    return fmt::format("{}; the time for it could not be measured: {}\n", size, error.what());
  }
}

// The count of the checkpoint that the run goes on from; of a run that did not count, the best so far or that
// checkpoint's own score begins it.
void RunCheckpoints::start_patience() {
  if (start_ && start_->state().least_score) {
    patience_.resume(*start_->state().least_score);
  } else if (best_) {
    patience_.resume({.score = *best_, .step = find_best_checkpoint(folder_->path())->step, .since = 0});
  } else if (start_ && start_->state().score) {
    patience_.resume({.score = *start_->state().score, .step = first_step(), .since = 0});
  }
  const std::string before = patience_.text();
  notes_ += fmt::format("patience      ends after {} evaluation{} in a row without a new least loss{}\n",
                        options_.patience, options_.patience == 1 ? "" : "s",
                        before.empty() ? "" : "; so far " + before);
}

bool RunCheckpoints::evaluated(const EngineGroup& engine, double loss) {
  patience_.add(engine.completed_steps(), loss);
  if (!saver_ || !options_.keep_best || !std::isfinite(loss)) return false;
  evaluated_ = engine.completed_steps();
  loss_ = loss;
  is_best_ = !best_ || loss < *best_;
  if (is_best_) best_ = loss;
  return is_best_;
}

std::string RunCheckpoints::after_step(EngineGroup& engine) {
  if (!saver_) return {};
  tell_failures();
  const bool best = std::exchange(is_best_, false);
  if (best || engine.completed_steps() % options_.checkpoint_every == 0)
    save(engine, best ? CheckpointRank::best : CheckpointRank::newest);
  return first_write();
}

std::string RunCheckpoints::finish(EngineGroup& engine) {
  if (!saver_) return {};
  if (engine.completed_steps() != saved_) save(engine);
  saver_->finish();
  tell_failures();
  return first_write();
}

// Returns a line about the first checkpoint once it is written, the first time that this is called then.
std::string RunCheckpoints::first_write() {
  const auto first = saver_->first_write();
  if (!first || std::exchange(told_first_, true)) return {};
  return fmt::format("checkpoint    the first, of step {}, was written in {}\n", first->step,
                     format_seconds(first->seconds));
}

CheckpointState RunCheckpoints::state_at(std::uint64_t step) const {
  CheckpointState state;
  state.step = step;
  state.seed = options_.seed;
  state.data_position = task_.position(state.step);
  state.configuration = configuration_;
  if (evaluated_ == state.step) state.score = loss_;
  state.loss_scale = loss_scale_;
  state.least_score = patience_.least();
  return state;
}

void RunCheckpoints::save(EngineGroup& engine, CheckpointRank rank) {
  CheckpointState state = state_at(saved_ = engine.completed_steps());
  StateAccess access = state_access(engine);
  access.read = [&](TensorId id, Bytes offset, std::span<std::byte> into) {
    engine.read(id, offset, into);
    const Tensor& tensor = graph_->tensor(id);
    const auto element = first_non_finite(tensor.type, into);
    if (!element) return;
    const std::string text = fmt::format("step {}: its update left {} in '{}' at element {}",
                                         engine.completed_steps(), element->is_nan ? "NaN" : "an infinity",
                                         tensor.name, offset / size_of(tensor.type) + element->index);
    throw Error(divergence_message(text, options_, last_before(engine)));
  };
  saver_->finish();
  tell_failures();
  if (rank == CheckpointRank::best) best_ = loss_;  // the failures told may have been those of a best one
  saver_->save(std::move(state), access, rank);
  tell_failures();  // of a save that was left out for lack of room
}

std::optional<BestCheckpoint> RunCheckpoints::best_to_export() const {
  if (options_.patience == 0 || options_.trains_nothing || !folder_ || !best_) return {};
  return find_best_checkpoint(folder_->path());
}

std::string RunCheckpoints::last_before(const EngineGroup& engine) {
  if (folder_) {
    saver_->finish();
    for (const CheckpointName& each : list_checkpoints(folder_->path()))
      if (each.step < engine.completed_steps()) return each.path;
  }
  return start_ ? start_->folder() : "";
}

void RunCheckpoints::tell_failures() {
  for (const std::string& failure : saver_->take_failures()) {
    failed_ = true;
    take_best();
    std::fprintf(stderr, "%s: warning: %s\n", program_name(options_.program),
                 printable_lines(failure).c_str());
  }
}

void RunCheckpoints::require_saved() const {
  if (!failed_) return;
  throw Error(
      fmt::format("--checkpoint {}: the run is done, but not all its checkpoints could be written; see "
                  "the warnings above",
                  options_.checkpoint_folder));
}

}  // namespace stowage::samples
