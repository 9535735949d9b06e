#include "src/device/cuda/cuda_device.h"

#include <fmt/core.h>

#include <array>
#include <map>
#include <utility>

#include "src/device/cuda/driver_api.h"
#include "src/device/cuda/memory_in_use.h"
#include "stowage/error.h"

namespace stowage::cuda {
namespace {

struct CardMemory {
  Bytes free = 0;
  Bytes total = 0;
};

CardMemory card_memory(const Doing& doing) {
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo", doing);
  return {free, total};
}

std::string pci_bus_id_of(const Doing& doing) {
  std::array<char, 32> text{};
  check(cudaDeviceGetPCIBusId(text.data(), static_cast<int>(text.size()), doing.ordinal),
        "cudaDeviceGetPCIBusId", doing);
  return text.data();
}

std::string name_of(const Doing& doing) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, doing.ordinal), "cudaGetDeviceProperties", doing);
  return properties.name;
}

// Ends the stream's work, then the stream.
struct EndStream {
  void operator()(cudaStream_t stream) const {
    cudaStreamSynchronize(stream);
    cudaStreamDestroy(stream);
  }
};

// Makes a copy, so that the driver allocates now what it allocates at the first copy.
void copy_once(void* scratch, const Doing& doing) {
  constexpr Bytes bytes = 64;
  Memory memory({.ordinal = doing.ordinal, .total = bytes, .virtual_memory = false});
  void* const pinned = memory.allocate(MemoryKind::pinned, bytes);
  {
    cudaStream_t made = nullptr;
    check(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "cudaStreamCreateWithFlags", doing);
    std::unique_ptr<CUstream_st, EndStream> stream(made);
    check(cudaMemcpyAsync(scratch, pinned, bytes, cudaMemcpyHostToDevice, made), "cudaMemcpyAsync", doing);
    check(cudaMemcpyAsync(pinned, scratch, bytes, cudaMemcpyDeviceToHost, made), "cudaMemcpyAsync", doing);
    check(cudaStreamSynchronize(made), "cudaStreamSynchronize", doing);
    check(cudaStreamDestroy(made), "cudaStreamDestroy", doing);
    [[maybe_unused]] const cudaStream_t ended = stream.release();
  }
  memory.release(MemoryKind::pinned, pinned);
}

bool has_context(int ordinal) {
  const auto ask = driver_api().device_primary_ctx_get_state;
  unsigned flags = 0;
  int active = 0;
  return ask != nullptr && ask(ordinal, &flags, &active) == CUDA_SUCCESS && active != 0;
}

// Returns the bytes of the card that other programs hold, asked once in a process for each card: later this
// process's own context would count too. 0 if unknown, or if the process has a context there already.
Bytes held_by_others(int ordinal, const std::string& pci_bus_id) {
  static Mutex mutex;
  static auto& known = *new std::map<int, Bytes>;
  const MutexLock lock(mutex);
  const auto found = known.find(ordinal);
  if (found != known.end()) return found->second;
  return known[ordinal] = has_context(ordinal) ? 0 : memory_in_use(pci_bus_id).value_or(0);
}

// Never frees turns that a stream may still write and read, because the card does not say that its work
// is done.
void keep_for_ever(std::shared_ptr<HostTurns> turns) {
  static Mutex mutex;
  static auto& kept = *new std::vector<std::shared_ptr<HostTurns>>;
  const MutexLock lock(mutex);
  kept.push_back(std::move(turns));
}

// Whether the device may have a context; true if unknown.
bool may_have_context(int ordinal) {
  const auto ask = driver_api().device_primary_ctx_get_state;
  unsigned flags = 0;
  int active = 0;
  return ask == nullptr || ask(ordinal, &flags, &active) != CUDA_SUCCESS || active != 0;
}

}  // namespace

CudaDevice::CudaDevice(const CudaOptions& options)
    : ordinal_(options.ordinal),
      keeps_current_(options.keeps_current_device),
      scratch_bytes_(options.scratch) {
  const Doing what = doing("open");
  name_ = name_of(what);
  const std::string pci_bus_id = pci_bus_id_of(what);
  others_ = held_by_others(ordinal_, pci_bus_id);
  const CurrentDevice current(ordinal_, keeps_current_, what);
  check(cudaFree(nullptr), "cudaFree", what);  // makes the context
  forget_fault(ordinal_);
  auto resources = std::make_unique<LaneResources>(ordinal_, scratch_bytes_);
  if (scratch_bytes_ > 0) copy_once(resources->scratch, what);
  const Bytes total = card_memory(what).total;
  memory_ = std::make_unique<Memory>(Memory::Options{ordinal_, total, options.virtual_memory, pci_bus_id});
  const MutexLock lock(mutex_);
  spare_.push_back(std::move(resources));
}

CudaDevice::~CudaDevice() {
  const OutsideCapture outside;
  cudaSetDevice(ordinal_);
  const MutexLock lock(mutex_);
  end_work();
  for (LaneSlot& lane : lanes_)
    if (lane.stream != nullptr && !lane.adopted) close_lane(lane);
  for (const EventSlot& event : events_)
    if (event.handle != nullptr) cudaEventDestroy(event.handle);
  lanes_.clear();
  spare_.clear();
  spare_turns_.clear();
  clock_.reset();
  memory_.reset();
}

// Ends the work of all lanes. Streams wait for functions and functions for streams: they end together, or the
// card has failed.
void CudaDevice::end_work() noexcept {
  bool done = true, adopted = false;
  for (const LaneSlot& lane : lanes_) {
    adopted = adopted || lane.adopted;
    if (lane.stream != nullptr && !lane.adopted)
      done = cudaStreamSynchronize(lane.stream) == cudaSuccess && done;
  }
  for (const LaneSlot& lane : lanes_) {
    if (lane.host == nullptr) continue;
    if (done) lane.host->finish();
    if (!done || adopted) keep_for_ever(lane.host->turns());
  }
  // All host lanes are stopped before any is destroyed, since one may wait for another.
  for (const LaneSlot& lane : lanes_)
    if (lane.host != nullptr) lane.host->stop();
  if (adopted)
    for (const auto& turns : spare_turns_) keep_for_ever(turns);
}

void CudaDevice::close_lane(LaneSlot& lane) noexcept {
  unregister_lane(lane.stream);
  lane.resources.reset();
  cudaStreamDestroy(lane.stream);
}

MemoryInfo CudaDevice::memory_info() const {
  const CurrentDevice current = enter("memory_info");
  const CardMemory card = card_memory(doing("memory_info"));
  const Bytes gone = card.total - card.free;
  const Bytes explained = others_ + memory_->held();
  return {card.total, card.free, gone > explained ? gone - explained : 0};
}

CurrentDevice CudaDevice::enter(std::string_view call) const {
  if (const auto fault = first_fault(ordinal_))
    throw DeviceError(
        fmt::format("{}: device {} is lost since an earlier failure: {}. End the process and start it "
                    "again",
                    call, ordinal_, *fault),
        std::string(call));
  return {ordinal_, keeps_current_, doing(call)};
}

CurrentDevice CudaDevice::begin_call(std::string_view call) {
  ++calls_;
  return enter(call);
}

std::string CudaDevice::describe_lane(LaneRole role, LaneId lane) {
  return fmt::format("{} lane {}", to_string(role), lane);
}

DeviceCounters CudaDevice::counters() const {
  const MutexLock lock(mutex_);
  DeviceCounters result = counters_;
  result.calls = calls_;
  return result;
}

void CudaDevice::reset_counters() {
  const MutexLock lock(mutex_);
  counters_ = {};
  calls_ = 0;
}

OutsideCapture::OutsideCapture() {
  const auto exchange = driver_api().thread_exchange_stream_capture_mode;
  exchanged_ = exchange != nullptr && exchange(&mode_) == CUDA_SUCCESS;
}

// Tries twice, so that the thread does not keep the relaxed mode.
OutsideCapture::~OutsideCapture() {
  for (int attempt = 0; exchanged_ && attempt < 2; ++attempt)
    exchanged_ = driver_api().thread_exchange_stream_capture_mode(&mode_) != CUDA_SUCCESS;
}

CurrentDevice::CurrentDevice(int ordinal, bool restores, const Doing& doing) {
  int now = ordinal;
  if (restores) check(cudaGetDevice(&now), "cudaGetDevice", doing);
  check(cudaSetDevice(ordinal), "cudaSetDevice", doing);
  if (now != ordinal && may_have_context(now)) before_ = now;
}

CurrentDevice::~CurrentDevice() {
  if (before_ >= 0) cudaSetDevice(before_);
}

}  // namespace stowage::cuda
