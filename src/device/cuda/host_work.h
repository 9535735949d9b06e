// HostWork: the functions that one host lane runs, in order, on a thread of its own. They never call CUDA;
// their exceptions are kept in the HostOrder.
//
// Two words of memory that the card reads and writes join the thread to the streams. A function that waits
// for streams waits for a *mark*, which the lane's own stream writes behind them; a stream that waits for a
// function waits for the function's number. A lane's functions thus put no work into a stream.
// cudaLaunchHostFunc would, and a stream has room for about thirty functions: a caller with hundreds would
// block, and its work for other streams, such as the next step, would begin late.
//
// One caller at a time, except for the functions of HostTurns.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "src/base/mutex.h"
#include "src/device/cuda/card_clock.h"
#include "src/device/cuda/host_order.h"

namespace stowage::cuda {

// Marks and functions are numbered from 1; comparisons allow for wrap-around. The object lies in memory that
// both the card and the host read and write.
class HostTurns {
 public:
  alignas(64) std::atomic<std::uint32_t> reached = 0;   // the last mark that the stream has written
  alignas(64) std::atomic<std::uint32_t> finished = 0;  // the last function that has run

  bool has_reached(std::uint32_t mark) const { return is_past(reached, mark); }
  bool has_finished(std::uint32_t function) const { return is_past(finished, function); }

  void finish(std::uint32_t function);
  // Blocks until the function has run, but no longer than `most`. Returns whether it has run.
  bool await_function(std::uint32_t function, std::chrono::milliseconds most);

 private:
  static bool is_past(const std::atomic<std::uint32_t>& word, std::uint32_t number) {
    return static_cast<std::int32_t>(word.load(std::memory_order_acquire) - number) >= 0;
  }

  Mutex mutex_;
  CondVar changed_;
  std::atomic<int> waiting_ = 0;
};

// The time at which a host lane came to an event.
using HostMoment = std::atomic<HostClock::time_point>;

class HostWork {
 public:
  // `description`: "host lane 3". Requires that nobody else uses `turns`, and that no function of a former
  // user is pending.
  HostWork(std::shared_ptr<HostOrder> order, LaneId lane, std::string description,
           std::shared_ptr<HostTurns> turns);
  HostWork(const HostWork&) = delete;
  HostWork& operator=(const HostWork&) = delete;
  ~HostWork();
  // Drops the functions that have not begun.
  void stop() noexcept;

  const std::shared_ptr<HostTurns>& turns() const { return turns_; }

  // Returns the next mark, for the stream to write.
  std::uint32_t next_mark() { return ++last_mark_; }
  // Makes later functions wait for the mark.
  void await_mark(std::uint32_t mark);
  // Makes later functions wait for another lane's function.
  void await_function(std::shared_ptr<HostTurns> turns, std::uint32_t function);
  void submit(const Launch& launch);
  // Returns the number of a function behind everything that the lane was given so far: the last function, or
  // a new empty one if a wait followed it.
  std::uint32_t point();
  // Appends an empty function that sets `moment` when it runs, and returns its number.
  std::uint32_t point(std::shared_ptr<HostMoment> moment);
  // Waits until all functions have run.
  void finish();

 private:
  struct Function {
    std::shared_ptr<HostTurns> turns;
    std::uint32_t number = 0;
  };
  struct Awaited {
    std::uint32_t mark = 0;
    std::vector<Function> others;
  };
  struct Item {
    std::uint32_t number = 0;
    Awaited awaits;
    HostOrder::Clock clock;
    std::string name;
    void (*function)(void* context) = nullptr;
    void* context = nullptr;
    std::shared_ptr<HostMoment> moment;
    Item* next = nullptr;
  };
  void submit(const Launch& launch, std::shared_ptr<HostMoment> moment);
  void run();
  Item* take();
  bool comes_to_turn(const Item& item) const;
  void perform(const Item& item);
  Item& unused();
  void put_back(Item& item);

  const std::shared_ptr<HostOrder> order_;
  const LaneId lane_;
  const std::string description_;
  const std::shared_ptr<HostTurns> turns_;
  std::uint32_t last_mark_, last_function_;
  Awaited awaited_;
  bool awaits_more_ = false;  // the next function awaits more than the last one did
  std::atomic<bool> ends_ = false;
  Mutex mutex_;
  CondVar more_;
  Item* oldest_ STOWAGE_GUARDED_BY(mutex_) = nullptr;
  Item* newest_ STOWAGE_GUARDED_BY(mutex_) = nullptr;
  // Items are reused: a periodic program soon allocates none.
  std::vector<std::unique_ptr<Item>> items_ STOWAGE_GUARDED_BY(mutex_);
  std::vector<Item*> unused_ STOWAGE_GUARDED_BY(mutex_);
  std::thread thread_;  // the last member: it uses the others
};

}  // namespace stowage::cuda
