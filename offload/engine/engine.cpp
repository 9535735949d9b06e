#include "stowage/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "allocator/arena.h"
#include "offload/engine/binding.h"
#include "offload/engine/checks.h"
#include "offload/engine/faults.h"
#include "offload/engine/host_memory.h"
#include "offload/engine/lanes.h"
#include "offload/engine/lent.h"
#include "offload/engine/non_finite.h"
#include "offload/engine/registered_memory.h"
#include "offload/engine/staging.h"
#include "offload/engine/state.h"
#include "offload/engine/step_events.h"
#include "offload/engine/step_runner.h"
#include "offload/engine/update.h"
#include "offload/engine/verify.h"
#include "stowage/cuda_device.h"
#include "stowage/planner.h"

namespace stowage {
namespace {

// Throws CommunicatorError if another rank has failed first.
void rethrow_of_another_rank(Communicator& communicator) {
  try {
    communicator.check();
  } catch (const CommunicatorError& error) {
    if (error.failed_rank() != communicator.rank()) throw;
  }
}

LaunchTable kernels_for(const Device& device, const EngineOptions& options) {
  return options.kernels ? *options.kernels : launch_table_for(device);
}

LaunchTable host_kernels_for(const Device& device, const EngineOptions& options) {
  if (options.host_kernels) return *options.host_kernels;
  const bool computes_on_cpu = device.info().backend != "cuda";
  return options.kernels && computes_on_cpu ? *options.kernels : cpu_launch_table();
}

}  // namespace

class Engine::Implementation {
 public:
  // `lender`: null, or the engine whose parameters this one takes.
  Implementation(Device& device, Implementation* lender, const Graph& graph, const Plan& plan,
                 const EngineOptions& options);
  ~Implementation() { lanes_.settle(); }

  StepReport step(std::span<const InputData> inputs, const StepOptions& options);
  void drain();
  std::uint64_t completed_steps() const { return completed_; }
  State& settled_state();
  std::vector<Interval> last_timeline();
  std::span<const BucketId> unpinned() const { return host_.unpinned(); }

 private:
  friend Engine::Engine(Engine&, const Graph&, const Plan&, const EngineOptions&);

  std::optional<ReplayVerifier> verifier_for(bool wanted) const {
    if (!wanted) return std::nullopt;
    return std::make_optional<ReplayVerifier>(device_, graph_, plan_, lanes_, bound_, pageable_fallback_);
  }
  Parity parity() const { return static_cast<Parity>(completed_ % 2); }
  void require_values() const;
  bool expects_clipping() const { return clipped_in_a_row_ >= clipped_in_a_row; }
  void begin_step(std::span<const InputData> inputs, const StepOptions& options);
  std::vector<LentParameter> borrowed() const;
  void borrow();
  void run_to_gate(const StepOptions& options);
  void run_update(StepReport& report);
  double idle_seconds();
  StepReport read_report() const;
  [[noreturn]] void explain_non_finite(const StepReport& report);
  [[noreturn]] void fail(const std::exception& cause, bool counted);

  Device& device_;
  Implementation* const lender_;
  Communicator* const communicator_;  // null: one device
  const Graph graph_;
  const Plan plan_;
  const std::uint64_t seed_;
  const std::uint64_t first_step_;
  const bool pageable_fallback_;
  const LaunchTable kernels_;
  const LaunchTable host_kernels_;
  const std::vector<TensorPlace> places_;
  const InstructionId loss_offload_;
  const std::vector<LentParameter> lent_;  // empty unless there is a lender
  Arena arena_;
  const RegisteredMemory registered_;  // all memory that collectives read and write
  HostMemory host_;
  Lanes lanes_;
  std::array<StepContext, 2> contexts_;  // one context for each parity
  std::vector<BoundInstruction> bound_;
  StepEvents events_;
  Event first_start_;
  Event drained_, resumed_;                 // recorded when a step was drained, and when the next began
  std::optional<ReplayVerifier> verifier_;  // present in verify mode
  StepRunner runner_;
  Staging staging_;
  Update update_;
  std::optional<State> state_;  // absent in an engine that has a lender
  Inputs inputs_;
  Measure measure_;
  const std::uint64_t speculations_;  // number of speculated updates in each step

  std::uint64_t completed_ = first_step_;
  const Implementation* borrower_ = nullptr;  // engine whose residents are in this one's arena
  bool in_flight_ = false;                    // work of the last completed step may still run
  bool was_drained_ = false;   // the last completed step was drained, and `drained_` is recorded
  bool events_stand_ = false;  // all events of the last completed step are recorded
  bool lost_ = false;
  bool partly_made_ = false;            // updates of a step were made before its gate, for good
  std::uint32_t clipped_in_a_row_ = 0;  // clipped steps in a row, up to the last one
};

Engine::Implementation::Implementation(Device& device, Implementation* lender, const Graph& graph,
                                       const Plan& plan, const EngineOptions& options)
    : device_(device),
      lender_(lender),
      communicator_(options.communicator),
      graph_(graph),
      plan_(plan),
      seed_(options.seed),
      first_step_(options.first_step),
      pageable_fallback_(options.pageable_fallback),
      kernels_(kernels_for(device, options)),
      host_kernels_(host_kernels_for(device, options)),
      places_(tensor_places(graph_, plan_)),
      loss_offload_(loss_offload(graph_, plan_, places_)),
      lent_(borrowed()),
      arena_(lender == nullptr
                 ? Arena(device, plan_.device_peak_bytes)
                 : Arena(lender->arena_, free_between_steps(lender->plan_).begin, plan_.device_peak_bytes)),
      registered_(communicator_, arena_.at(0, plan_.device_peak_bytes), plan_.device_peak_bytes),
      host_(device, plan_, pageable_fallback_, lender != nullptr),
      lanes_(device, plan_),
      bound_(bind({graph_, plan_, kernels_, host_kernels_, lanes_.streams(), options.machine, places_, arena_,
                   host_.buckets(), host_.undo(), lent_, contexts_})),
      events_(device, plan_, {plan_.gate, loss_offload_}, options.measurement, collectives_of(bound_)),
      first_start_(device),
      drained_(device),
      resumed_(device),
      verifier_(verifier_for(options.verify_recompute)),
      runner_(device, communicator_, plan_, lanes_, events_, bound_),
      staging_(device, lanes_, host_.spare(), pageable_fallback_),
      update_(device, plan_, lanes_, runner_, bound_, pageable_fallback_),
      inputs_(graph_, places_, host_),
      measure_(device, plan_, events_),
      speculations_(static_cast<std::uint64_t>(std::count_if(
          bound_.begin(), bound_.end(), [](const auto& each) { return each.undo != nullptr; }))) {
  if (lender_ != nullptr) lender_->borrower_ = nullptr;  // one that is gone may have had this address
  if (lender_ != nullptr) return;
  state_.emplace(staging_, graph_, plan_, places_, host_, arena_);
  state_->initialise(seed_, options.initialise);
}

// Returns the lender's places of the graph's parameters, by tensor.
std::vector<LentParameter> Engine::Implementation::borrowed() const {
  if (lender_ == nullptr) return {};
  const std::vector<TensorId> there = parameters_of(lender_->graph_, graph_);
  std::vector<LentParameter> lent(there.size());
  for (TensorId id = 0; id < there.size(); ++id)
    if (there[id] != no_id) lent[id] = lender_->state_->lent(there[id]);
  return lent;
}

// Makes the lender's values and its arena ready for a step.
void Engine::Implementation::borrow() {
  lender_->require_values();
  lender_->drain();
  if (lender_->borrower_ == this) return;
  lender_->borrower_ = nullptr;
  try {
    lender_->state_->refresh_lent();
    load_residents(device_, lanes_[LaneRole::h2d], plan_, arena_, lent_);
  } catch (const std::exception&) {
    lender_->lost_ |= !lanes_.settle();  // copies may be on their way into its arena
    throw;
  }
  lender_->borrower_ = this;
}

void Engine::Implementation::require_values() const {
  if (partly_made_)
    throw DeviceError(
        "a step with the optimizer in backward was made in part, so that weights and optimizer state are "
        "lost: make a new engine and restore the last checkpoint",
        "step");
  if (lost_)
    throw DeviceError(
        "values on the device are lost after a failed update: make a new engine and restore a "
        "checkpoint",
        "step");
}

// A step that does not begin ends the other ranks' steps, which would wait for it.
void Engine::Implementation::begin_step(std::span<const InputData> inputs, const StepOptions& options) {
  try {
    require_values();
    borrower_ = nullptr;
    check_loss_scale(options, completed_);
    if (options.loss_scale && plan_.optimizer_in_backward)
      throw InvalidInput(
          "a loss scale is for steps that may be left out, and the plan makes updates before it is known "
          "whether they are: plan without the optimizer in backward, or give no loss scale");
    inputs_.load(inputs);
    if (lender_ != nullptr) borrow();
  } catch (const std::exception& error) {
    if (communicator_ != nullptr) communicator_->abort(error.what());
    throw;
  }
}

StepReport Engine::Implementation::step(std::span<const InputData> inputs, const StepOptions& options) {
  begin_step(inputs, options);
  const DeviceCounters before = device_.counters();
  const double received = runner_.received_bytes();
  run_to_gate(options);
  StepReport report = read_report();
  report.overflowed = is_overflow(report, options);
  if (report.overflowed) report.clip_scale = 1;  // the gradients were not clipped
  const bool finite = std::isfinite(report.loss) && std::isfinite(report.grad_norm);
  if (!finite && !report.overflowed) explain_non_finite(report);
  run_update(report);
  const DeviceCounters after = device_.counters();
  report.h2d_bytes = after.h2d_bytes - before.h2d_bytes;
  report.d2h_bytes = after.d2h_bytes - before.d2h_bytes;
  report.peer_bytes = static_cast<Bytes>(runner_.received_bytes() - received);
  if (verifier_) report.d2h_bytes -= verifier_->copied_bytes();
  if (verifier_) report.verified_replays = verifier_->replays();
  if (lender_ != nullptr) drain();
  report.device_peak_bytes = after.highest_device_byte;
  return report;
}

void Engine::Implementation::run_to_gate(const StepOptions& options) {
  try {
    const LossScale unscaled{1};
    const LossScale& loss_scale = options.loss_scale ? *options.loss_scale : unscaled;
    contexts_[parity()] = {completed_,
                           seed_,
                           options.learning_rate,
                           options.speculate.value_or(!expects_clipping()),
                           loss_scale.scale,
                           loss_scale.skipped_steps};
    runner_.forget(parity());
    runner_.set_follower(verifier_ ? &*verifier_ : nullptr);
    if (verifier_) verifier_->begin_step();
    if (completed_ == first_step_) device_.record(first_start_.id(), lanes_[LaneRole::compute]);
    if (was_drained_) device_.record(resumed_.id(), lanes_[LaneRole::compute]);
    runner_.enqueue(0, plan_.gate + 1, parity(), in_flight_);
    device_.synchronise(events_.end(parity(), plan_.gate));
    if (communicator_ != nullptr) communicator_->check();  // collectives that ended here may have failed
    runner_.set_current(loss_offload_);
    device_.synchronise(events_.end(parity(), loss_offload_));
  } catch (const std::exception& error) {
    fail(error, false);
  }
}

StepReport Engine::Implementation::read_report() const {
  const auto host_value = [this](TensorId id) {
    return host_.bucket(places_[id].bucket) + places_[id].offset;
  };
  StepReport report;
  report.step = completed_;
  if (graph_.loss != no_id) std::memcpy(&report.loss, host_value(graph_.loss), sizeof report.loss);
  std::memcpy(&report.grad_norm, host_value(graph_.clip), sizeof report.grad_norm);
  std::memcpy(&report.clip_scale, host_value(graph_.clip) + sizeof report.grad_norm,
              sizeof report.clip_scale);
  if (contexts_[parity()].speculate) report.speculated_updates = speculations_;
  return report;
}

// The step can be made up to its gate once more, to the same bits: nothing behind the gate has been enqueued,
// and the inputs are where they were. Updates that were made for good before the gate are the exception.
void Engine::Implementation::explain_non_finite(const StepReport& report) {
  std::optional<NonFiniteSearch> search;  // the search lives until the lanes have settled
  try {
    lanes_.synchronise();
    if (update_.made_for_good(parity())) throw unsearched();  // a second run would give other bits
    update_.undo(parity());
    contexts_[parity()].speculate = false;
    search.emplace(device_, graph_, plan_, lanes_, bound_, pageable_fallback_);
    runner_.forget(parity());
    runner_.set_follower(&*search);
    runner_.enqueue(0, plan_.gate + 1, parity(), false);
    throw NonFiniteValue();
  } catch (NonFiniteValue& value) {
    value.loss = report.loss;
    value.grad_norm = report.grad_norm;
    fail(value, false);
  } catch (const std::exception& error) {
    fail(error, false);
  }
}

void Engine::Implementation::run_update(StepReport& report) {
  const Parity parity = this->parity();
  clipped_in_a_row_ = report.clip_scale == 1 && !report.overflowed ? 0 : clipped_in_a_row_ + 1;
  ++completed_;
  try {
    runner_.enqueue(plan_.gate + 1, static_cast<InstructionId>(plan_.instructions.size()), parity,
                    in_flight_);
    in_flight_ = true;
    const EventId start =
        report.step == first_step_ ? first_start_.id() : events_.end(1 - parity, plan_.gate);
    runner_.set_current(plan_.gate);
    report.idle_seconds = idle_seconds();
    const StepTime time = measure_.step_time(parity, start, report.idle_seconds, events_stand_);
    report.seconds = time.seconds;
    report.stall_fraction = time.stall_fraction;
    report.collective_seconds = time.collective_seconds;
    events_stand_ = events_.measurement() != Measurement::step;
  } catch (const std::exception& error) {
    fail(error, true);
  }
}

double Engine::Implementation::idle_seconds() {
  if (!std::exchange(was_drained_, false)) return 0;
  return device_.elapsed_seconds(drained_.id(), resumed_.id());
}

void Engine::Implementation::fail(const std::exception& cause, bool counted) {
  const std::uint64_t step = counted && completed_ > first_step_ ? completed_ - 1 : completed_;
  if (communicator_ != nullptr) communicator_->abort(cause.what());  // no lane waits for other ranks any more
  const bool settled = lanes_.settle();
  if (lender_ != nullptr) lender_->lost_ |= !settled;
  in_flight_ = false;
  was_drained_ = false;
  events_stand_ = false;
  if (settled && !counted) update_.undo(parity());
  // Which updates the other ranks have made is unknown here.
  const bool others = communicator_ != nullptr && plan_.optimizer_in_backward;
  const bool partly = settled && !counted && (others || update_.made_for_good(parity()));
  // Checked even if this step never got to its gate, because the update of the step before may have failed.
  const bool complete =
      completed_ == first_step_ || (settled && update_.complete(static_cast<Parity>((completed_ - 1) % 2)));
  lost_ = !settled || !complete;
  partly_made_ |= partly;
  if (communicator_ != nullptr) rethrow_of_another_rank(*communicator_);
  const Failure failure{cause, runner_.current(), step, counted, lost_, partly};
  if (const auto* difference = dynamic_cast<const ReplayDifference*>(&cause))
    throw make_mismatch(graph_, plan_, bound_, verifier_->tracker(), *difference, failure);
  if (const auto* value = dynamic_cast<const NonFiniteValue*>(&cause))
    throw make_non_finite(graph_, plan_, bound_, *value, failure);
  throw make_step_error(plan_, bound_, failure);
}

void Engine::Implementation::drain() {
  if (!in_flight_) return;
  runner_.set_current(static_cast<InstructionId>(plan_.instructions.size() - 1));
  try {
    lanes_.synchronise();
    device_.record(drained_.id(), lanes_[LaneRole::compute]);
    device_.synchronise(drained_.id());  // a lane's thread that wakes late would report a later time
  } catch (const std::exception& error) {
    fail(error, true);
  }
  in_flight_ = false;
  was_drained_ = true;
}

State& Engine::Implementation::settled_state() {
  if (!state_)
    throw InvalidInput("an engine that evaluates another has no values of its own: ask that one for them");
  require_values();
  drain();
  borrower_ = nullptr;
  return *state_;
}

std::vector<Interval> Engine::Implementation::last_timeline() {
  drain();
  if (!events_stand_ || events_.measurement() != Measurement::timeline) return {};
  return measure_.timeline(1 - parity());
}

Engine::Engine(Device& device, const Graph& graph, const Plan& plan, const EngineOptions& options) {
  // An engine that is not made ends the other ranks' constructors, which would wait for it.
  const auto or_abort = [&](const auto& action) {
    try {
      action();
    } catch (const std::exception& error) {
      if (options.communicator != nullptr) options.communicator->abort(error.what());
      throw;
    }
  };
  or_abort([&] {
    check_ranks(graph, options.communicator);
    check_plan(graph, plan, options.validate);
  });
  // expect_one_plan needs no or_abort, since it throws on all ranks.
  if (options.communicator != nullptr) expect_one_plan(*options.communicator, device, plan, options);
  or_abort(
      [&] { implementation_ = std::make_unique<Implementation>(device, nullptr, graph, plan, options); });
}

Engine::Engine(Engine& lender, const Graph& graph, const Plan& plan, const EngineOptions& options) {
  check_ranks(graph, nullptr);
  Implementation& own = *lender.implementation_;
  if (own.lender_ != nullptr)
    throw InvalidInput("an engine that evaluates another lends nothing: name the one that trains");
  check_evaluation(graph, plan, own.plan_);
  check_plan(planned_beside(graph, own.graph_, own.plan_), plan, options.validate);
  EngineOptions alone = options;
  alone.communicator = nullptr;
  implementation_ = std::make_unique<Implementation>(own.device_, &own, graph, plan, alone);
}

Engine::~Engine() = default;

StepReport Engine::step(std::span<const InputData> inputs, const StepOptions& options) {
  return implementation_->step(inputs, options);
}

std::span<const BucketId> Engine::unpinned() const { return implementation_->unpinned(); }
void Engine::drain() { implementation_->drain(); }
std::uint64_t Engine::completed_steps() const { return implementation_->completed_steps(); }
std::vector<std::byte> Engine::read(TensorId tensor) { return implementation_->settled_state().read(tensor); }

void Engine::write(TensorId tensor, std::span<const std::byte> value) {
  implementation_->settled_state().write(tensor, value);
}
void Engine::read(TensorId tensor, Bytes offset, std::span<std::byte> into) {
  implementation_->settled_state().read(tensor, offset, into);
}

void Engine::write(TensorId tensor, Bytes offset, std::span<const std::byte> value) {
  implementation_->settled_state().write(tensor, offset, value);
}
void Engine::fill(TensorId tensor, const FillPiece& piece) {
  implementation_->settled_state().fill(tensor, piece);
}

std::vector<Interval> Engine::last_timeline() { return implementation_->last_timeline(); }

}  // namespace stowage
