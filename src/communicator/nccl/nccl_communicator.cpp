#include "src/communicator/nccl/nccl_communicator.h"

#include <fmt/core.h>

#include <chrono>
#include <cstring>
#include <exception>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace stowage::communication {
namespace {

constexpr const char* opening = "open_nccl_communicator";
// Time between looks for NCCL's errors and other ranks'.
constexpr std::chrono::milliseconds between_looks{100};

void expect_cuda(const Device& device, const Channel* channel) {
  if (device.info().backend != "cuda")
    throw InvalidInput(fmt::format("{}: the device is of backend '{}'; give it a CUDA device", opening,
                                   device.info().backend));
  if (channel == nullptr)
    throw InvalidInput(fmt::format("{}: there is no channel; open that of the ranks (channel.h)", opening));
}

int rank_in(const Device& device, const Channel* channel) {
  expect_cuda(device, channel);
  return channel->rank();
}

}  // namespace

NcclCommunicator::NcclCommunicator(Device& device, std::shared_ptr<Channel> channel)
    : device_(device),
      channel_(std::move(channel)),
      rank_(rank_in(device, channel_.get())),
      size_(channel_->size()) {
  try {
    met_ = DeviceMemory(device_, MemoryKind::device, static_cast<Bytes>(size_));
    open();
  } catch (const std::exception& error) {
    // The other ranks wait in calls of the channel.
    channel_->fail(failure_.get().value_or(RankFailure{rank_, opening, error.what()}));
    line_.reset();
    give_up();
    throw;
  }
}

NcclCommunicator::~NcclCommunicator() {
  watch_.reset();
  try {
    if (!failure_.get()) close();
  } catch (const std::exception& error) {
    fail({rank_, "its destructor", error.what()});
  }
  line_.reset();
  give_up();
}

void NcclCommunicator::open() {
  // The watcher only keeps the failure: NCCL may be aborted only after all ranks have been told, so `look`
  // aborts it.
  line_ = channel_->open_line({[this](const RankFailure& failure) { failure_.keep(failure); },
                               [this](const RankFailure& death) { failure_.keep(death); },
                               [this](int ended) {
                                 int none = -1;
                                 left_.compare_exchange_strong(none, ended);
                               }});
  guarded(opening, [&] {
    // Rank 0 sends NCCL's answer, then the group's name.
    ncclUniqueId group{};
    const ncclResult_t named = rank_ == 0 ? ncclGetUniqueId(&group) : ncclSuccess;
    std::string id = std::to_string(static_cast<int>(named)) + ' ';
    id.append(group.internal, sizeof group.internal);
    id = channel_->from(0, id);
    settle(opening, static_cast<ncclResult_t>(std::stoi(id)), 0);
    id.erase(0, id.find(' ') + 1);
    if (id.size() != sizeof group.internal) fail({0, opening, "it hands out no name of a group"});
    failure_.expect_none(opening);
    std::memcpy(group.internal, id.data(), id.size());
    run(lane_.id(), opening, {}, [&](ncclComm_t& communicator, cudaStream_t) {
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 0;
      return ncclCommInitRankConfig(&communicator, size_, group, rank_, &config);
    });
    channel_->barrier();  // else a rank that fails at once would make others' opening fail
  });
  watch_.emplace(between_looks, [this] { return look(); });
}

void NcclCommunicator::close() {
  guarded("its destructor", [&] {
    std::multimap<void*, void*> registered;
    {
      const MutexLock lock(mutex_);
      registered.swap(registered_);
    }
    run(lane_.id(), "its destructor", {}, [&](ncclComm_t& communicator, cudaStream_t) {
      for (const auto& [address, handle] : registered) ncclCommDeregister(communicator, handle);
      return ncclCommFinalize(communicator);
    });
    const MutexLock lock(mutex_);
    if (communicator_ != nullptr) ncclCommDestroy(std::exchange(communicator_, nullptr));
  });
}

void NcclCommunicator::all_gather(LaneId lane, const void* share, void* whole, Bytes share_bytes,
                                  Bytes whole_bytes) {
  Call call;
  guarded("all_gather",
          [&] { call = all_gather_call(rank_, size_, share, whole, share_bytes, whole_bytes); });
  enqueue(lane, call.collective, call.buffers, [&](ncclComm_t& communicator, cudaStream_t stream) {
    if (whole_bytes < static_cast<Bytes>(size_) * share_bytes) return blocks(call, communicator, stream);
    return ncclAllGather(share, whole, share_bytes, ncclInt8, communicator, stream);
  });
}

void NcclCommunicator::exchange(LaneId lane, const void* whole, void* shares, Bytes share_bytes,
                                Bytes whole_bytes) {
  Call call;
  guarded("exchange", [&] { call = exchange_call(size_, whole, shares, share_bytes, whole_bytes); });
  enqueue(lane, call.collective, call.buffers,
          [&](ncclComm_t& communicator, cudaStream_t stream) { return blocks(call, communicator, stream); });
}

// The group is ended whatever its calls answer: otherwise NCCL would count later calls to this group.
ncclResult_t NcclCommunicator::blocks(const Call& call, ncclComm_t communicator, cudaStream_t stream) const {
  const auto& [collective, buffers] = call;
  ncclResult_t first = ncclGroupStart();
  if (first != ncclSuccess) return first;
  const auto note = [&](ncclResult_t answer) {
    if (first == ncclSuccess) first = answer;
  };
  for (int other = 0; other < size_; ++other) {
    if (const auto sent = block_between(collective, buffers, rank_, other))
      note(ncclSend(buffers.send + sent->from, sent->bytes, ncclInt8, other, communicator, stream));
    if (const auto received = block_between(collective, buffers, other, rank_))
      note(ncclRecv(buffers.receive + received->to, received->bytes, ncclInt8, other, communicator, stream));
  }
  note(ncclGroupEnd());
  return first;
}

void NcclCommunicator::broadcast(LaneId lane, int root, void* data, Bytes bytes) {
  guarded("broadcast", [&] { expect_rank(root, size_); });
  auto* const at = static_cast<std::byte*>(data);
  enqueue(lane, {CollectiveKind::broadcast, root, bytes}, {at, at},
          [&](ncclComm_t& communicator, cudaStream_t stream) {
            return ncclBroadcast(data, data, bytes, ncclInt8, root, communicator, stream);
          });
}

void NcclCommunicator::barrier() {
  guarded("barrier", [&] { device_.synchronise(done_.id()); });
  const Bytes own = static_cast<Bytes>(rank_);
  enqueue(lane_.id(), {CollectiveKind::barrier}, {}, [&](ncclComm_t& communicator, cudaStream_t stream) {
    return ncclAllGather(met_.data() + own, met_.data(), 1, ncclInt8, communicator, stream);
  });
  guarded("barrier", [&] {
    device_.synchronise(done_.id());
    failure_.expect_none("barrier");
  });
}

void NcclCommunicator::abort(std::string_view reason) { fail({rank_, "abort", std::string(reason)}); }

void NcclCommunicator::check() {
  failure_.expect_none("check");
  const ncclResult_t answer = state();
  if (answer != ncclInProgress) settle("check", answer, rank_);
}

void NcclCommunicator::register_memory(void* address, Bytes bytes) {
  guarded("register_memory", [&] {
    void* handle = nullptr;
    run(lane_.id(), "register_memory", {}, [&](ncclComm_t& communicator, cudaStream_t) {
      return ncclCommRegister(communicator, address, bytes, &handle);
    });
    const MutexLock lock(mutex_);
    registered_.emplace(address, handle);
  });
}

void NcclCommunicator::forget_memory(void* address) {
  if (failure_.get()) return give_up();  // a registration lasts as long as NCCL's communicator
  guarded("forget_memory", [&] {
    void* handle = nullptr;
    {
      const MutexLock lock(mutex_);
      const auto found = registered_.find(address);
      if (found == registered_.end())
        throw InvalidInput("forget_memory: no memory is registered at this address; register it first");
      handle = found->second;
      registered_.erase(found);
    }
    run(lane_.id(), "forget_memory", {},
        [&](ncclComm_t& communicator, cudaStream_t) { return ncclCommDeregister(communicator, handle); });
  });
}

void NcclCommunicator::guarded(const char* call, const std::function<void()>& work) {
  try {
    work();
  } catch (const std::exception& error) {
    fail({rank_, call, error.what()});
    throw;
  }
}

void NcclCommunicator::enqueue(LaneId lane, const Collective& collective, const Buffers& buffers,
                               const Work& work) {
  const char* const call = to_string(collective.kind);
  guarded(call, [&] {
    // A rank that failed would have told its reason before it ended.
    if (left_ >= 0) fail({left_, {}, "it has ended its communicator", RankFailure::Kind::ended});
    run(lane, call, accesses_of(collective, rank_, size_, buffers), work);
    device_.record(done_.id(), lane);
  });
}

void NcclCommunicator::run(LaneId lane, const char* call, std::span<const Access> accesses,
                           const Work& work) {
  failure_.expect_none(call);
  ncclResult_t answer = ncclSuccess;
  const auto enqueued = [&] {
    const MutexLock lock(mutex_);
    if (!failure_.get()) answer = work(communicator_, static_cast<cudaStream_t>(device_.native_stream(lane)));
  };
  Launch launch;
  launch.name = call;
  launch.function = [](void* context) { (*static_cast<decltype(enqueued)*>(context))(); };
  launch.context = const_cast<std::remove_const_t<decltype(enqueued)>*>(&enqueued);
  launch.accesses = accesses;
  device_.launch(lane, launch);
  settle(call, answer, rank_);
}

void NcclCommunicator::settle(const char* call, ncclResult_t answer, int rank) {
  for (; answer == ncclInProgress; answer = state()) {
    failure_.expect_none(call);
    std::this_thread::yield();
  }
  if (answer != ncclSuccess)
    fail({rank, call,
          fmt::format("NCCL answers '{}'; NCCL_DEBUG=WARN has it say more", ncclGetErrorString(answer))});
  failure_.expect_none(call);
}

ncclResult_t NcclCommunicator::state() {
  const MutexLock lock(mutex_);
  ncclResult_t answer = ncclSuccess;
  if (communicator_ == nullptr) return answer;
  const ncclResult_t asked = ncclCommGetAsyncError(communicator_, &answer);
  return asked == ncclSuccess ? answer : asked;
}

bool NcclCommunicator::look() noexcept {
  try {
    const ncclResult_t answer = state();
    if (answer != ncclSuccess && answer != ncclInProgress) settle("a collective", answer, rank_);
  } catch (const std::exception&) {  // all ranks know of it
    return false;
  }
  if (!failure_.get()) return true;
  give_up();
  return false;
}

void NcclCommunicator::fail(const RankFailure& failure) {
  if (failure_.keep(failure) && line_) line_->tell(failure);
  give_up();
}

void NcclCommunicator::give_up() {
  const MutexLock lock(mutex_);
  if (communicator_ != nullptr) ncclCommAbort(std::exchange(communicator_, nullptr));
}

}  // namespace stowage::communication
