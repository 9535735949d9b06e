#include "tests/offload/engine/cuda/one_card.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "src/communicator/rendezvous.h"
#include "stowage/error.h"

namespace stowage::testing {
namespace {

void check(cudaError_t answer, const char* call) {
  if (answer != cudaSuccess) throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(answer));
}

class CardEvent {
 public:
  CardEvent() { check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreate"); }
  CardEvent(const CardEvent&) = delete;
  CardEvent& operator=(const CardEvent&) = delete;
  ~CardEvent() { cudaEventDestroy(event_); }
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

// What a rank brings to a collective: where others read, and from when on; then when it has read theirs.
struct Brought {
  const std::byte* bytes = nullptr;
  cudaEvent_t event = nullptr;
};
using Meeting = communication::Rendezvous<Brought>;

class OneCardCommunicator final : public Communicator {
 public:
  OneCardCommunicator(Device& device, std::shared_ptr<Meeting> meeting, int rank, int size)
      : device_(device), meeting_(std::move(meeting)), rank_(rank), size_(size) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void all_gather(LaneId lane, const void* share, void* whole, Bytes share_bytes,
                  Bytes whole_bytes) override {
    collect(lane, share, [&](int other, const std::byte* of_other, cudaStream_t stream) {
      const Bytes at = begin_of(other, share_bytes, whole_bytes);
      const Bytes end = begin_of(other + 1, share_bytes, whole_bytes);
      copy(static_cast<std::byte*>(whole) + at, of_other, end - at, stream);
    });
  }
  void exchange(LaneId lane, const void* whole, void* shares, Bytes share_bytes, Bytes whole_bytes) override {
    const Bytes at = begin_of(rank_, share_bytes, whole_bytes);
    const Bytes end = begin_of(rank_ + 1, share_bytes, whole_bytes);
    collect(lane, whole, [&](int other, const std::byte* of_other, cudaStream_t stream) {
      copy(static_cast<std::byte*>(shares) + static_cast<Bytes>(other) * share_bytes, of_other + at, end - at,
           stream);
    });
  }
  void broadcast(LaneId lane, int root, void* data, Bytes bytes) override {
    collect(lane, data, [&](int other, const std::byte* of_other, cudaStream_t stream) {
      if (other == root) copy(static_cast<std::byte*>(data), of_other, bytes, stream);
    });
  }
  void barrier() override {
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    come({});
  }
  void abort(std::string_view reason) override {
    static_cast<void>(reason);
    meeting_->stop();
  }
  void check() override {}

 private:
  static void check(cudaError_t answer, const char* call) { testing::check(answer, call); }
  static Bytes begin_of(int rank, Bytes share_bytes, Bytes whole_bytes) {
    return std::min(whole_bytes, static_cast<Bytes>(rank) * share_bytes);
  }
  static void copy(std::byte* to, const std::byte* from, Bytes bytes, cudaStream_t stream) {
    if (bytes > 0 && to != from)
      check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream), "cudaMemcpyAsync");
  }
  const std::vector<Brought>& come(const Brought& brought) {
    const std::vector<Brought>* const all = meeting_->come(rank_, brought);
    if (all == nullptr) throw CommunicatorError("a rank has failed", "one card", rank_);
    return *all;
  }
  // Each rank's stream reads once all are there, and goes on once all have read.
  template <class Take>
  void collect(LaneId lane, const void* own, Take take) {
    const auto stream = static_cast<cudaStream_t>(device_.native_stream(lane));
    const auto meet = [&](const CardEvent& event) -> const std::vector<Brought>& {
      check(cudaEventRecord(event.get(), stream), "cudaEventRecord");
      const std::vector<Brought>& all = come({static_cast<const std::byte*>(own), event.get()});
      for (const Brought& brought : all)
        check(cudaStreamWaitEvent(stream, brought.event, 0), "cudaStreamWaitEvent");
      return all;
    };
    const std::vector<Brought>& all = meet(ready_);
    for (int other = 0; other < size_; ++other)
      take(other, all[static_cast<std::size_t>(other)].bytes, stream);
    meet(taken_);
  }

  Device& device_;
  const std::shared_ptr<Meeting> meeting_;
  const int rank_, size_;
  const CardEvent ready_, taken_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_one_card_communicators(std::span<Device* const> devices) {
  const auto size = static_cast<int>(devices.size());
  const auto meeting = std::make_shared<Meeting>(size);
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (int rank = 0; rank < size; ++rank)
    communicators.push_back(
        std::make_unique<OneCardCommunicator>(*devices[static_cast<std::size_t>(rank)], meeting, rank, size));
  return communicators;
}

}  // namespace stowage::testing
