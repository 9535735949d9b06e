// Transport: moves the bytes of SimulatedCommunicator's collectives from rank to rank, and tells ranks of
// failures. Ranks are threads of one process, or processes of MPI.
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

// A rank's call, and the undefined parts of the bytes that it sends.
struct Announcement {
  Collective collective;
  std::vector<SentRange> undefined;
};

// Requires that one thread calls at a time, except `fail` and `failure`. Calls throw CommunicatorError once
// the communicator has failed, except these two.
class Transport {
 public:
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Announces a call. Returns all ranks' announcements by rank, valid until this rank's next call; empty if
  // the transport does not know them.
  virtual std::span<const Announcement> announce(Announcement announcement) = 0;
  // Does the work: blocks until all ranks have come and this one has received its bytes. Returns when the
  // work ends, in virtual time.
  virtual double move(const Collective& collective, const Buffers& buffers,
                      const simulated::Arrival& arrival) = 0;

  // Fails the communicator: all ranks learn of the first failure, and waits end.
  virtual void fail(const RankFailure& failure) = 0;
  virtual std::optional<RankFailure> failure() const = 0;
};

// Throws CommunicatorError in the name of `call` if the transport has failed.
void expect_no_failure(const Transport& transport, std::string_view call);

// The first failure of a communicator that this rank knows of. Thread-safe.
class FirstFailure {
 public:
  // Keeps the failure if it is the first; returns whether it is.
  bool keep(const RankFailure& failure) {
    const MutexLock lock(mutex_);
    if (failure_) return false;
    failure_ = failure;
    failed_ = true;
    return true;
  }
  std::optional<RankFailure> get() const {
    if (!failed_) return std::nullopt;
    const MutexLock lock(mutex_);
    return failure_;
  }
  // Throws CommunicatorError in the name of `call` if there is one.
  void expect_none(std::string_view call) const {
    if (const auto failure = get()) throw error_of(call, *failure);
  }

 private:
  std::atomic<bool> failed_ = false;  // lock-free fast path for polling
  mutable Mutex mutex_;
  std::optional<RankFailure> failure_ STOWAGE_GUARDED_BY(mutex_);
};

}  // namespace stowage::communication
