#include "stowage/simulated_device.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <vector>

#include "src/base/mutex.h"
#include "src/device/simulated/access_checker.h"
#include "src/device/simulated/event_table.h"
#include "src/device/simulated/execution_lane.h"
#include "src/device/simulated/fault.h"
#include "src/device/simulated/memory.h"
#include "src/device/simulated/names.h"
#include "stowage/error.h"

namespace stowage {
namespace simulated {
namespace {

// One mutex over the tables and the checker; virtual time also runs its work under it, so that work
// may not call the device. Nobody blocks under it: synchronising waits on a signal outside.
class Implementation final : public SimulatedDevice {
 public:
  explicit Implementation(const SimulatedOptions& options)
      : options_(options),
        memory_(options.capacity, options.host_capacity, options.poison),
        checker_(options.host_orders) {}

  DeviceInfo info() const override { return {"simulated", "simulated"}; }
  MemoryInfo memory_info() const override {
    const MutexLock lock(mutex_);
    return memory_.device_info();
  }

  void* allocate(MemoryKind kind, Bytes bytes) override;
  void release(MemoryKind kind, void* address) override;
  Bytes granularity() const override { return Memory::granularity; }
  void* reserve(Bytes bytes) override;
  void unreserve(void* address) override;
  void map(void* range, Bytes offset, Bytes bytes) override;
  void unmap(void* range, Bytes offset, Bytes bytes) override;

  LaneId create_lane(LaneRole role) override;
  void destroy_lane(LaneId lane) override;
  EventId create_event() override;
  void destroy_event(EventId event) override;

  void record(EventId event, LaneId lane) override;
  void wait(LaneId lane, EventId event) override;
  bool query(EventId event) override;
  void synchronise(EventId event) override;
  void synchronise_lane(LaneId lane) override;
  double elapsed_seconds(EventId from, EventId to) override;

  void copy(LaneId lane, void* to, const void* from, Bytes bytes, std::string_view name) override;
  void launch(LaneId lane, const Launch& launch) override;
  void discard(LaneId lane, void* address, Bytes bytes) override;

  DeviceCounters counters() const override;
  void reset_counters() override;
  void set_fault(Fault fault) override;
  void clear_fault() override;
  bool fault_fired() const override;

 private:
  // What work touches: for messages about it.
  struct Work {
    std::string_view call;
    std::string_view name;
    LaneId lane;
  };

  // Counts the call, checks the lane; throws for an injected fault. True: the work shall fail.
  void begin_call(std::string_view call) STOWAGE_REQUIRES(mutex_);
  bool begin_work(std::string_view call, LaneId lane) STOWAGE_REQUIRES(mutex_);
  void begin_allocating_call(std::string_view call, MemoryKind kind, Bytes bytes) STOWAGE_REQUIRES(mutex_);
  void expect_lane(LaneId lane, std::string_view call) const STOWAGE_REQUIRES(mutex_);

  // The access as bytes of one live allocation. Throws AccessViolation.
  RangeAccess resolve(const Work& work, const Access& access) STOWAGE_REQUIRES(mutex_);
  void touch(const RangeAccess& access) STOWAGE_REQUIRES(mutex_);
  void expect_kinds(const Work& work, const void* to, const void* from) STOWAGE_REQUIRES(mutex_);
  void forget_allocation(Allocation& allocation, std::string_view call) STOWAGE_REQUIRES(mutex_);

  void submit(LaneId lane, Task task) STOWAGE_REQUIRES(mutex_);
  SignalId submit_record(LaneId lane, bool clears) STOWAGE_REQUIRES(mutex_);
  void reserve_signals(std::size_t signals) STOWAGE_REQUIRES(mutex_);
  void join_host(SignalId signal, double time) STOWAGE_REQUIRES(mutex_);
  double now() const STOWAGE_REQUIRES(mutex_);
  Pace pace(LaneRole role) const;
  const Link& link(LaneRole role) const { return role == LaneRole::h2d ? options_.h2d : options_.d2h; }

  const SimulatedOptions options_;
  const SteadyClock clock_;
  mutable Mutex mutex_;
  Signals signals_;
  Names names_ STOWAGE_GUARDED_BY(mutex_);
  FaultInjector faults_ STOWAGE_GUARDED_BY(mutex_);
  DeviceCounters counters_ STOWAGE_GUARDED_BY(mutex_);
  Memory memory_ STOWAGE_GUARDED_BY(mutex_);
  AccessChecker checker_ STOWAGE_GUARDED_BY(mutex_);
  EventTable events_ STOWAGE_GUARDED_BY(mutex_){signals_};
  std::vector<VectorClock> signal_clocks_ STOWAGE_GUARDED_BY(mutex_);  // by signal
  std::vector<RangeAccess> accesses_ STOWAGE_GUARDED_BY(mutex_);       // of the launch at hand
  double host_time_ STOWAGE_GUARDED_BY(mutex_) = 0;                    // of the caller, in virtual time
  // Last, so that their threads end before what they use.
  std::vector<std::unique_ptr<ExecutionLane>> lanes_ STOWAGE_GUARDED_BY(mutex_);
};

// ---- memory

void* Implementation::allocate(MemoryKind kind, Bytes bytes) {
  const MutexLock lock(mutex_);
  begin_allocating_call("allocate", kind, bytes);
  Allocation& allocation = memory_.allocate(kind, bytes);
  allocation.range = checker_.add_range(kind, bytes, allocation.number);
  ++(kind == MemoryKind::device ? counters_.device_allocations : counters_.pinned_allocations);
  return allocation.base;
}

void Implementation::release(MemoryKind kind, void* address) {
  const MutexLock lock(mutex_);
  forget_allocation(memory_.plain_at(kind, address, "release"), "release");
}

void* Implementation::reserve(Bytes bytes) {
  const MutexLock lock(mutex_);
  begin_call("reserve");
  Allocation& range = memory_.reserve(bytes);
  range.range = checker_.add_range(MemoryKind::device, bytes, range.number);
  return range.base;
}

void Implementation::unreserve(void* address) {
  const MutexLock lock(mutex_);
  forget_allocation(memory_.reserved_at(address, "unreserve"), "unreserve");
}

void Implementation::forget_allocation(Allocation& allocation, std::string_view call) {
  checker_.expect_finished(allocation.range, 0, allocation.bytes, call);
  checker_.remove_range(allocation.range);
  memory_.release(allocation);
}

void Implementation::map(void* range, Bytes offset, Bytes bytes) {
  const MutexLock lock(mutex_);
  begin_allocating_call("map", MemoryKind::device, bytes);
  Allocation& reserved = memory_.reserved_at(range, "map");
  memory_.map(reserved, offset, bytes);
  checker_.forget(reserved.range, offset, offset + bytes);
  ++counters_.device_allocations;
}

void Implementation::unmap(void* range, Bytes offset, Bytes bytes) {
  const MutexLock lock(mutex_);
  Allocation& reserved = memory_.reserved_at(range, "unmap");
  memory_.expect_granules(reserved, offset, bytes, true, "unmap");
  checker_.expect_finished(reserved.range, offset, offset + bytes, "unmap");
  memory_.unmap(reserved, offset, bytes);
}

// ---- lanes and events

LaneId Implementation::create_lane(LaneRole role) {
  const MutexLock lock(mutex_);
  begin_call("create_lane");
  const LaneId lane = checker_.add_lane(role);
  if (lanes_.size() <= lane) lanes_.resize(lane + 1);
  const LaneRunner::Surroundings surroundings{&signals_, &clock_, options_.poison};
  lanes_[lane] =
      make_execution_lane(options_.executor, {surroundings, pace(role), checker_.describe_lane(lane)});
  return lane;
}

void Implementation::destroy_lane(LaneId lane) {
  std::unique_ptr<ExecutionLane> ending;
  {
    const MutexLock lock(mutex_);
    expect_lane(lane, "destroy_lane");
    ending = std::move(lanes_[lane]);
  }
  ending.reset();  // joins its thread: not under the mutex
  const MutexLock lock(mutex_);
  checker_.remove_lane(lane);
}

EventId Implementation::create_event() {
  const MutexLock lock(mutex_);
  begin_call("create_event");
  const EventId event = events_.create();
  // An event's own signal, and earlier ones that queued waits still hold.
  reserve_signals(4 * (event + std::size_t{16}));
  return event;
}

void Implementation::destroy_event(EventId event) {
  const MutexLock lock(mutex_);
  events_.destroy(event, "destroy_event");
}

void Implementation::record(EventId event, LaneId lane) {
  const MutexLock lock(mutex_);
  begin_call("record");
  expect_lane(lane, "record");
  events_.expect(event, "record");
  events_.set(event, submit_record(lane, false));
}

void Implementation::wait(LaneId lane, EventId event) {
  const MutexLock lock(mutex_);
  begin_call("wait");
  expect_lane(lane, "wait");
  const auto signal = events_.signal(event, "wait");
  if (!signal) return;
  checker_.wait(lane, signal_clocks_[*signal]);
  signals_.retain(*signal);
  Task task{.kind = TaskKind::wait};
  task.ignores_failure = signals_.peek(*signal).cleared;
  task.signal = *signal;
  submit(lane, task);
}

bool Implementation::query(EventId event) {
  const MutexLock lock(mutex_);
  begin_call("query");
  const auto signal = events_.signal(event, "query");
  if (!signal) return true;
  const Outcome outcome = signals_.peek(*signal);
  if (outcome.done) join_host(*signal, outcome.time);
  return outcome.done;
}

void Implementation::synchronise(EventId event) {
  SignalId signal = 0;
  {
    const MutexLock lock(mutex_);
    begin_call("synchronise");
    const auto recorded = events_.signal(event, "synchronise");
    if (!recorded) return;
    signal = *recorded;
    signals_.retain(signal);
  }
  const Outcome outcome = signals_.await(signal);
  {
    const MutexLock lock(mutex_);
    join_host(signal, outcome.time);
    signals_.release(signal);
  }
  if (outcome.failure != nullptr && !outcome.cleared)
    throw DeviceError(outcome.failure->message, outcome.failure->call, outcome.failure->work);
}

void Implementation::synchronise_lane(LaneId lane) {
  SignalId signal = 0;
  {
    const MutexLock lock(mutex_);
    begin_call("synchronise_lane");
    expect_lane(lane, "synchronise_lane");
    signal = submit_record(lane, true);
  }
  const Outcome outcome = signals_.await(signal);
  {
    const MutexLock lock(mutex_);
    join_host(signal, outcome.time);
    signals_.release(signal);
    if (outcome.failure != nullptr) signals_.clear_failures(lane);
  }
  if (outcome.failure != nullptr)
    throw DeviceError(outcome.failure->message, outcome.failure->call, outcome.failure->work);
}

double Implementation::elapsed_seconds(EventId from, EventId to) {
  const MutexLock lock(mutex_);
  begin_call("elapsed_seconds");
  const auto begin = events_.signal(from, "elapsed_seconds"), end = events_.signal(to, "elapsed_seconds");
  const Outcome first = begin ? signals_.peek(*begin) : Outcome{};
  const Outcome last = end ? signals_.peek(*end) : Outcome{};
  if (!first.done || !last.done)
    throw InvalidInput(
        fmt::format("elapsed_seconds: event {} is not recorded and finished; synchronise with it first",
                    first.done ? to : from));
  return last.time - first.time;
}

SignalId Implementation::submit_record(LaneId lane, bool clears) {
  const SignalId signal = signals_.acquire(lane);  // for the caller
  reserve_signals(signal + std::size_t{1});
  checker_.record(lane, signal_clocks_[signal]);
  signals_.retain(signal);  // for the task
  Task task{.kind = TaskKind::record};
  task.clears = clears;
  task.signal = signal;
  submit(lane, task);
  return signal;
}

void Implementation::reserve_signals(std::size_t signals) {
  if (signals <= signal_clocks_.size()) return;
  const std::size_t first = signal_clocks_.size();
  signal_clocks_.resize(std::max(signals, 2 * first));
  for (std::size_t i = first; i < signal_clocks_.size(); ++i) signal_clocks_[i].reserve(16);
  signals_.reserve(signal_clocks_.size());
}

// ---- work

void Implementation::copy(LaneId lane, void* to, const void* from, Bytes bytes, std::string_view name) {
  const MutexLock lock(mutex_);
  const bool fails = begin_work("copy", lane);
  const Work work{"copy", name, lane};
  expect_kinds(work, to, from);
  if (bytes == 0) return;
  const RangeAccess target = resolve(work, {to, bytes, AccessMode::write});
  const RangeAccess source = resolve(work, {const_cast<void*>(from), bytes, AccessMode::read});
  const std::string& kept = names_.intern(name);
  if (options_.check_accesses) checker_.copy(lane, kept, target, source);
  touch(target);
  touch(source);
  const LaneRole role = checker_.role(lane);
  (role == LaneRole::h2d ? counters_.h2d_bytes : counters_.d2h_bytes) += bytes;
  Task task{.kind = TaskKind::copy, .fails = fails, .name = &kept};
  task.to = to;
  task.from = from;
  task.bytes = bytes;
  task.seconds = link(role).seconds(bytes);
  submit(lane, task);
}

void Implementation::launch(LaneId lane, const Launch& launch) {
  const MutexLock lock(mutex_);
  const bool fails = begin_work("launch", lane);
  if (launch.function == nullptr)
    throw InvalidInput(fmt::format("launch '{}': no function; give it one", launch.name));
  accesses_.clear();
  for (const Access& access : launch.accesses)
    if (access.bytes > 0) accesses_.push_back(resolve({"launch", launch.name, lane}, access));
  const std::string& kept = names_.intern(launch.name);
  if (options_.check_accesses) checker_.launch(lane, kept, accesses_);
  for (const RangeAccess& access : accesses_) touch(access);
  Task task{.kind = TaskKind::launch, .fails = fails, .name = &kept};
  task.function = launch.function;
  task.context = launch.context;
  task.seconds = launch.modelled_seconds;
  for (const RangeAccess& access : accesses_) task.bytes += access.end - access.begin;
  submit(lane, task);
}

void Implementation::discard(LaneId lane, void* address, Bytes bytes) {
  const MutexLock lock(mutex_);
  begin_call("discard");
  expect_lane(lane, "discard");
  if (bytes == 0) return;
  const Allocation* const allocation = memory_.find(address);
  if (allocation != nullptr && allocation->kind != MemoryKind::device)
    throw InvalidInput("discard: the address is pinned memory; discard device memory only");
  const RangeAccess range = resolve({"discard", "discard", lane}, {address, bytes, AccessMode::write});
  const std::string& kept = names_.intern("discard");
  if (options_.check_accesses) checker_.discard(lane, kept, range);
  if (options_.poison == Poison::none) return;
  Task task{.kind = TaskKind::poison, .name = &kept};
  task.to = address;
  task.bytes = bytes;
  submit(lane, task);
}

RangeAccess Implementation::resolve(const Work& work, const Access& access) {
  const Allocation* const found = memory_.find(access.address);
  if (found == nullptr)
    throw AccessViolation(
        fmt::format("{} '{}' on {} touches {} bytes at {}, which no live allocation holds: allocate "
                    "them first, and keep them until the work is done",
                    work.call, work.name, checker_.describe_lane(work.lane), access.bytes, access.address),
        std::string(work.call));
  const auto begin = static_cast<Bytes>(static_cast<std::byte*>(access.address) - found->base);
  const bool inside = access.bytes <= found->bytes - begin;
  if (!inside || !memory_.is_mapped(*found, begin, begin + access.bytes))
    throw AccessViolation(
        fmt::format("{} '{}' on {} touches {}, {}", work.call, work.name, checker_.describe_lane(work.lane),
                    checker_.describe_bytes(found->range, begin, begin + access.bytes),
                    inside ? "not all of which is mapped: map it first"
                           : "which end past it: correct the access's size"),
        std::string(work.call));
  return {found->range, begin, begin + access.bytes, access.mode};
}

void Implementation::touch(const RangeAccess& access) {
  if (checker_.kind(access.range) == MemoryKind::device)
    counters_.highest_device_byte = std::max(counters_.highest_device_byte, access.end);
}

void Implementation::expect_kinds(const Work& work, const void* to, const void* from) {
  const LaneRole role = checker_.role(work.lane);
  if (role != LaneRole::h2d && role != LaneRole::d2h)
    throw InvalidInput(fmt::format("copy '{}': {} cannot copy; use an h2d or a d2h lane", work.name,
                                   checker_.describe_lane(work.lane)));
  const Allocation* const target = memory_.find(to);
  const Allocation* const source = memory_.find(from);
  if (target == nullptr || source == nullptr) return;  // `resolve` reports it
  const MemoryKind wanted = role == LaneRole::h2d ? MemoryKind::device : MemoryKind::pinned;
  if (target->kind != wanted || source->kind == wanted)
    throw InvalidInput(
        fmt::format("copy '{}': {} copies from {}; give it one side of each kind, in that direction",
                    work.name, checker_.describe_lane(work.lane),
                    role == LaneRole::h2d ? "pinned to device memory" : "device to pinned memory"));
}

// ---- calls

void Implementation::begin_call(std::string_view call) {
  if (faults_.next_call())
    throw DeviceError(fmt::format("{}: fault injected; repeat the call", call), std::string(call));
}

bool Implementation::begin_work(std::string_view call, LaneId lane) {
  const auto fault = faults_.next_call();
  if (fault == Fault::Kind::call)
    throw DeviceError(fmt::format("{}: fault injected; repeat the call", call), std::string(call));
  expect_lane(lane, call);
  return fault.has_value();
}

void Implementation::begin_allocating_call(std::string_view call, MemoryKind kind, Bytes bytes) {
  if (faults_.next_call()) throw memory_.out_of_memory(kind, bytes, fmt::format("{} (fault injected)", call));
}

void Implementation::expect_lane(LaneId lane, std::string_view call) const {
  if (!checker_.has_lane(lane) || lanes_[lane] == nullptr)
    throw InvalidInput(fmt::format("{}: there is no lane {}; pass what create_lane returned", call, lane));
}

void Implementation::submit(LaneId lane, Task task) {
  task.ready = now();
  lanes_[lane]->submit(task);
}

void Implementation::join_host(SignalId signal, double time) {
  checker_.synchronise(signal_clocks_[signal]);
  host_time_ = std::max(host_time_, time);
}

double Implementation::now() const {
  if (options_.executor == Executor::threaded) return clock_.now();
  return options_.host_orders ? host_time_ : 0;
}

Pace Implementation::pace(LaneRole role) const {
  if (options_.executor == Executor::virtual_time) return Pace::virtual_time;
  const bool copies = role == LaneRole::h2d || role == LaneRole::d2h;
  return copies && link(role).throttled ? Pace::modelled : Pace::measured;
}

DeviceCounters Implementation::counters() const {
  const MutexLock lock(mutex_);
  DeviceCounters result = counters_;
  result.calls = faults_.calls();
  return result;
}

void Implementation::reset_counters() {
  const MutexLock lock(mutex_);
  counters_ = {};
  faults_.reset_calls();
}

void Implementation::set_fault(Fault fault) {
  const MutexLock lock(mutex_);
  faults_.set(fault);
}

void Implementation::clear_fault() {
  const MutexLock lock(mutex_);
  faults_.clear();
}

bool Implementation::fault_fired() const {
  const MutexLock lock(mutex_);
  return faults_.fired();
}

}  // namespace
}  // namespace simulated

std::unique_ptr<SimulatedDevice> open_simulated_device(const SimulatedOptions& options) {
  return std::make_unique<simulated::Implementation>(options);
}

}  // namespace stowage
