// Transport: how the bytes of a collective come from rank to rank, and how ranks learn that one has failed.
// What SimulatedCommunicator leaves to be done by threads of one process or by MPI.
#pragma once

#include <atomic>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "src/base/mutex.h"
#include "src/communicator/collective.h"
#include "src/device/simulated/meeting.h"

namespace stowage::communication {

// Bytes [begin, end) of a rank's `send`.
struct SentRange {
  Bytes begin = 0;
  Bytes end = 0;
};

// What a rank calls, and which of the bytes that it sends are undefined.
struct Announcement {
  Collective collective;
  std::vector<SentRange> undefined;
};

// All calls come from one thread at a time, but for `fail` and `failure`. All but these throw
// CommunicatorError once the communicator has failed.
class Transport {
 public:
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // At the call. What all ranks announce, by rank, valid until this rank's next call; empty where that is not
  // known.
  virtual std::span<const Announcement> announce(Announcement announcement) = 0;
  // The work: blocks until all ranks have come and this one has what it shall receive. When it ends, for
  // virtual time.
  virtual double move(const Collective& collective, const Buffers& buffers,
                      const simulated::Arrival& arrival) = 0;

  // The first failure counts; all ranks learn of it, and all that wait go on.
  virtual void fail(const RankFailure& failure) = 0;
  virtual std::optional<RankFailure> failure() const = 0;
};

// Throws CommunicatorError in the name of `call` if it has failed.
void expect_no_failure(const Transport& transport, std::string_view call);

// The first failure of a communicator that this rank knows of. Thread-safe.
class FirstFailure {
 public:
  // True if it is the first.
  bool keep(const RankFailure& failure) {
    const MutexLock lock(mutex_);
    if (failure_) return false;
    failure_ = failure;
    there_is_ = true;
    return true;
  }
  std::optional<RankFailure> get() const {
    if (!there_is_) return std::nullopt;
    const MutexLock lock(mutex_);
    return failure_;
  }
  // Throws CommunicatorError in the name of `call` if there is one.
  void expect_none(std::string_view call) const {
    if (const auto failure = get()) throw error_of(call, *failure);
  }

 private:
  std::atomic<bool> there_is_ = false;  // so that who asks again and again takes no lock
  mutable Mutex mutex_;
  std::optional<RankFailure> failure_ STOWAGE_GUARDED_BY(mutex_);
};

}  // namespace stowage::communication
