#include "src/communicator/simulated_communicator.h"

#include <fmt/core.h>

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

namespace stowage::communication {
namespace {

simulated::MeetingDevice& meeting_device(Device& device, std::string_view call) {
  auto* const simulated = dynamic_cast<simulated::MeetingDevice*>(&device);
  if (simulated == nullptr)
    throw InvalidInput(fmt::format("{}: the device is of backend '{}'; give it simulated devices", call,
                                   device.info().backend));
  return *simulated;
}

// Returns the parts of this rank's receive buffer that get bytes which the senders announced as undefined.
std::vector<Access> undefined_of(const Transport& transport, const Collective& collective,
                                 const Buffers& buffers, std::span<const Announcement> announced) {
  std::vector<Access> parts;
  for (std::size_t sender = 0; sender < announced.size(); ++sender) {
    const auto block = block_between(collective, buffers, static_cast<int>(sender), transport.rank());
    if (!block) continue;
    for (const SentRange& range : announced[sender].undefined) {
      const Bytes begin = std::max(range.begin, block->from);
      const Bytes end = std::min(range.end, block->from + block->bytes);
      if (begin < end)
        parts.push_back(
            {buffers.receive + block->to + (begin - block->from), end - begin, AccessMode::write});
    }
  }
  return parts;
}

}  // namespace

void expect_simulated(Device& device, std::string_view call) { meeting_device(device, call); }

void expect_no_failure(const Transport& transport, std::string_view call) {
  if (const auto failure = transport.failure()) throw error_of(call, *failure);
}

SimulatedCommunicator::SimulatedCommunicator(Device& device, std::unique_ptr<Transport> transport,
                                             std::string_view call)
    : device_(meeting_device(device, call)), transport_(std::move(transport)) {}

SimulatedCommunicator::~SimulatedCommunicator() {
  bool left_work = false;
  {
    const MutexLock lock(mutex_);
    left_work = pending_ > 0;
  }
  if (left_work) transport_->fail({rank(), {}, "it ended its communicator while work was under way"});
  await_work();
}

void SimulatedCommunicator::all_gather(LaneId lane, const void* share, void* whole, Bytes share_bytes,
                                       Bytes whole_bytes) {
  guarded(CollectiveKind::all_gather, [&] {
    const Call call = all_gather_call(rank(), size(), share, whole, share_bytes, whole_bytes);
    enqueue(lane, call.collective, call.buffers);
  });
}

void SimulatedCommunicator::exchange(LaneId lane, const void* whole, void* shares, Bytes share_bytes,
                                     Bytes whole_bytes) {
  guarded(CollectiveKind::exchange, [&] {
    const Call call = exchange_call(size(), whole, shares, share_bytes, whole_bytes);
    enqueue(lane, call.collective, call.buffers);
  });
}

void SimulatedCommunicator::broadcast(LaneId lane, int root, void* data, Bytes bytes) {
  guarded(CollectiveKind::broadcast, [&] {
    expect_rank(root, size());
    auto* const at = static_cast<std::byte*>(data);
    enqueue(lane, {CollectiveKind::broadcast, root, bytes}, {at, at});
  });
}

void SimulatedCommunicator::barrier() {
  guarded(CollectiveKind::barrier, [&] {
    await_work();
    expect_no_failure(*transport_, "barrier");
    const Collective collective{CollectiveKind::barrier};
    transport_->announce({collective, {}});
    transport_->move(collective, {}, {});
  });
}

void SimulatedCommunicator::abort(std::string_view reason) {
  transport_->fail({rank(), "abort", std::string(reason)});
}

void SimulatedCommunicator::check() { expect_no_failure(*transport_, "check"); }

void SimulatedCommunicator::guarded(CollectiveKind kind, const std::function<void()>& work) {
  try {
    work();
  } catch (const std::exception& error) {
    transport_->fail({rank(), to_string(kind), error.what()});
    throw;
  }
}

void SimulatedCommunicator::enqueue(LaneId lane, const Collective& collective, const Buffers& buffers) {
  const char* const name = to_string(collective.kind);
  expect_no_failure(*transport_, name);
  const std::vector<Access> accesses = accesses_of(collective, rank(), size(), buffers);
  Announcement announcement{collective, {}};
  for (const Access& access : accesses) {
    if (access.mode == AccessMode::write) continue;
    for (const Access& part : device_.undefined_parts(lane, name, access)) {
      const auto begin = static_cast<Bytes>(static_cast<const std::byte*>(part.address) - buffers.send);
      announcement.undefined.push_back({begin, begin + part.bytes});
    }
  }
  const auto announced = transport_->announce(std::move(announcement));
  const std::vector<Access> undefined = undefined_of(*transport_, collective, buffers, announced);
  Work* const work = begin_work(lane, collective, buffers);
  const auto function = [](void* context, const simulated::Arrival& arrival) {
    auto* const mine = static_cast<Work*>(context);
    return mine->owner->run(mine, arrival);
  };
  try {
    device_.meet(lane, {name, function, work, accesses, undefined});
  } catch (...) {
    end_work(work);
    throw;
  }
}

double SimulatedCommunicator::run(Work* work, const simulated::Arrival& arrival) {
  const struct Ending {
    ~Ending() { work->owner->end_work(work); }  // nothing touches this communicator afterwards
    Work* work;
  } ending{work};
  const char* const name = to_string(work->collective.kind);
  if (arrival.failure != nullptr) transport_->fail({rank(), name, arrival.failure});
  expect_no_failure(*transport_, name);
  return transport_->move(work->collective, work->buffers, arrival);
}

SimulatedCommunicator::Work* SimulatedCommunicator::begin_work(LaneId lane, const Collective& collective,
                                                               const Buffers& buffers) {
  const MutexLock lock(mutex_);
  if (pending_ > 0 && lane != lane_)
    throw InvalidInput(
        fmt::format("{}: work on lane {} is not done; synchronise with it before another lane is used",
                    to_string(collective.kind), lane_));
  lane_ = lane;
  ++pending_;
  if (idle_.empty()) idle_.push_back(works_.emplace_back(std::make_unique<Work>()).get());
  Work* const work = idle_.back();
  idle_.pop_back();
  *work = {this, collective, buffers};
  return work;
}

void SimulatedCommunicator::end_work(Work* work) {
  const MutexLock lock(mutex_);
  idle_.push_back(work);
  --pending_;
  ended_.notify_all();
}

void SimulatedCommunicator::await_work() {
  const MutexLock lock(mutex_);
  while (pending_ > 0) ended_.wait(mutex_);
}

}  // namespace stowage::communication
