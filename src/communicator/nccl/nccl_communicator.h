// NcclCommunicator: collectives of CUDA cards, which NCCL enqueues on a lane's stream.
//
// NCCL is set not to block: calls poll until NCCL has taken the work, so that a failure ends the wait. NCCL
// does not report failures of other ranks, the channel does; it reports its own errors only when asked. Its
// work on the card may wait for ever. A thread therefore polls for both kinds of failure and aborts NCCL's
// communicator, which ends its work on the card and so the waits for the card.
#pragma once

#include <nccl.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "src/base/mutex.h"
#include "src/communicator/transport.h"
#include "src/communicator/watch.h"
#include "stowage/communicator.h"

namespace stowage::communication {

class NcclCommunicator final : public Communicator {
 public:
  // As open_nccl_communicator.
  NcclCommunicator(Device& device, std::shared_ptr<Channel> channel);
  ~NcclCommunicator() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void all_gather(LaneId lane, const void* share, void* whole, Bytes share_bytes, Bytes whole_bytes) override;
  void exchange(LaneId lane, const void* whole, void* shares, Bytes share_bytes, Bytes whole_bytes) override;
  void broadcast(LaneId lane, int root, void* data, Bytes bytes) override;
  void barrier() override;
  void abort(std::string_view reason) override;
  void check() override;
  void register_memory(void* address, Bytes bytes) override;
  void forget_memory(void* address) override;

 private:
  // A call of NCCL, or a group of calls.
  using Work = std::function<ncclResult_t(ncclComm_t& communicator, cudaStream_t stream)>;

  void open();
  void close();
  // Fails all ranks if `work` throws.
  void guarded(const char* call, const std::function<void()>& work);
  void enqueue(LaneId lane, const Collective& collective, const Buffers& buffers, const Work& work);
  // Calls NCCL with the lane's stream, its card current; returns once NCCL has taken the work.
  // Throws CommunicatorError.
  void run(LaneId lane, const char* call, std::span<const Access> accesses, const Work& work);
  // Throws CommunicatorError for an answer of rank `rank` that is an error.
  void settle(const char* call, ncclResult_t answer, int rank);
  ncclResult_t state();
  // Fails all ranks if NCCL reports an error. False once the communicator has failed.
  bool look() noexcept;
  ncclResult_t blocks(const Call& call, ncclComm_t communicator, cudaStream_t stream) const;
  void fail(const RankFailure& failure);
  void give_up();

  Device& device_;
  const std::shared_ptr<Channel> channel_;
  const int rank_, size_;
  FirstFailure failure_;
  std::atomic<int> left_ = -1;  // the first rank that has ended its communicator
  Mutex mutex_;                 // held around each call of NCCL
  ncclComm_t communicator_ STOWAGE_GUARDED_BY(mutex_) = nullptr;       // null: not opened yet, or ended
  std::multimap<void*, void*> registered_ STOWAGE_GUARDED_BY(mutex_);  // NCCL's handles by address
  Lane lane_{device_, LaneRole::compute};  // lane for work without a lane of the caller
  Event done_ = Event::untimed(device_);   // event behind the last collective
  DeviceMemory met_;                       // one byte per rank, for barriers
  std::unique_ptr<Line> line_;             // the line's watcher uses the members above
  std::optional<Watch> watch_;             // the last member: its thread uses all others
};

}  // namespace stowage::communication
