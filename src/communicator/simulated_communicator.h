// SimulatedCommunicator: collectives as work on a lane of a simulated device, whose memory the host
// can reach.
//
// A call declares to the device the memory that this rank sends and receives. The call's work ends only
// when the other ranks have read this rank's memory, so that the device checks these accesses for as long
// as they last.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "src/base/mutex.h"
#include "src/communicator/transport.h"
#include "stowage/communicator.h"

namespace stowage::communication {

// Throws InvalidInput, in the name of `call`, for another backend.
void expect_simulated(Device& device, std::string_view call);

class SimulatedCommunicator final : public Communicator {
 public:
  // Throws InvalidInput, in the name of `call`, if the device is not simulated.
  SimulatedCommunicator(Device& device, std::unique_ptr<Transport> transport, std::string_view call);
  ~SimulatedCommunicator() override;

  int rank() const override { return transport_->rank(); }
  int size() const override { return transport_->size(); }
  void all_gather(LaneId lane, const void* share, void* whole, Bytes share_bytes, Bytes whole_bytes) override;
  void exchange(LaneId lane, const void* whole, void* shares, Bytes share_bytes, Bytes whole_bytes) override;
  void broadcast(LaneId lane, int root, void* data, Bytes bytes) override;
  void barrier() override;
  void abort(std::string_view reason) override;
  void check() override;

 private:
  // A collective under way.
  struct Work {
    SimulatedCommunicator* owner = nullptr;
    Collective collective;
    Buffers buffers;
  };

  // Fails all ranks if `work` throws.
  void guarded(CollectiveKind kind, const std::function<void()>& work);
  void enqueue(LaneId lane, const Collective& collective, const Buffers& buffers);
  double run(Work* work, const simulated::Arrival& arrival);
  Work* begin_work(LaneId lane, const Collective& collective, const Buffers& buffers);
  void end_work(Work* work);
  void await_work();

  simulated::MeetingDevice& device_;
  std::unique_ptr<Transport> transport_;
  Mutex mutex_;
  CondVar ended_;
  std::size_t pending_ STOWAGE_GUARDED_BY(mutex_) = 0;
  LaneId lane_ STOWAGE_GUARDED_BY(mutex_) = 0;  // lane of the pending work
  std::vector<std::unique_ptr<Work>> works_ STOWAGE_GUARDED_BY(mutex_);
  std::vector<Work*> idle_ STOWAGE_GUARDED_BY(mutex_);
};

}  // namespace stowage::communication
