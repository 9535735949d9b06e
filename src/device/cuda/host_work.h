// HostWork: the functions that one host lane runs, in the order of the lane's stream, on a thread of its own.
// They never call CUDA; what they throw is kept in the HostOrder.
//
// Functions run in *turns*, which have numbers. The stream tells the thread that a turn has come, and waits
// until it has ended, by writing and reading two words of memory. Functions between which the stream does
// nothing else share a turn. (cudaLaunchHostFunc makes its caller wait once some thirty functions of a stream
// are pending, as any call does once there is much in a stream, and a step has hundreds: what the caller
// enqueues behind them, for other streams, would start too late.)
//
// All but `turns`: one caller at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "src/base/mutex.h"
#include "src/device/cuda/host_order.h"

namespace stowage::cuda {

// Numbers of turns, compared as those of a circle. In memory that both the card and the host read and write.
struct HostTurns {
  alignas(64) std::atomic<std::uint32_t> reached = 0;   // by the stream
  alignas(64) std::atomic<std::uint32_t> finished = 0;  // by the host
};

class HostWork {
 public:
  struct Item {
    std::uint32_t turn = 0;
    HostOrder::Clock clock;
    std::string name;
    void (*function)(void* context) = nullptr;
    void* context = nullptr;
    Item* next = nullptr;
  };

  // `description`: "host lane 3". `turns`: used by no other, with no function of a former user pending.
  HostWork(std::shared_ptr<HostOrder> order, LaneId lane, std::string description,
           std::shared_ptr<HostTurns> turns);
  HostWork(const HostWork&) = delete;
  HostWork& operator=(const HostWork&) = delete;
  // Functions whose turn has not come never run.
  ~HostWork();

  HostTurns& turns() { return *turns_; }
  std::shared_ptr<HostTurns> shared_turns() const { return turns_; }

  // For `join` or `submit`, or `cancel`.
  Item& prepare(const Launch& launch);
  // Adds it to the last turn; false where that has ended, or the stream does something else behind it.
  bool join(Item& item) noexcept;
  // The next turn. The stream is to write its number to `reached`, and then to wait until `finished` is not
  // before it.
  std::uint32_t next_turn() { return ++last_turn_; }
  // As the first function of that turn, once the stream will do so.
  void submit(Item& item) noexcept;
  void cancel(Item& item) noexcept;
  // The stream does something else behind the last function.
  void separate() { joins_ = false; }

 private:
  void run();
  Item* take();
  Item* take_of(std::uint32_t turn);
  bool comes_to(std::uint32_t turn) const;
  void push(Item& item) noexcept STOWAGE_REQUIRES(mutex_);
  void perform(const Item& item);
  void put_back(Item& item) noexcept;

  const std::shared_ptr<HostOrder> order_;
  const LaneId lane_;
  const std::string description_;
  const std::shared_ptr<HostTurns> turns_;
  std::uint32_t last_turn_;
  bool joins_ = false;
  std::atomic<bool> ends_ = false;
  Mutex mutex_;
  CondVar more_;
  Item* oldest_ STOWAGE_GUARDED_BY(mutex_) = nullptr;
  Item* newest_ STOWAGE_GUARDED_BY(mutex_) = nullptr;
  bool open_ STOWAGE_GUARDED_BY(mutex_) = false;  // the last turn has not ended
  // A periodic program soon allocates none.
  std::vector<std::unique_ptr<Item>> items_ STOWAGE_GUARDED_BY(mutex_);
  std::vector<Item*> unused_ STOWAGE_GUARDED_BY(mutex_);
  std::thread thread_;  // last: it uses the others
};

}  // namespace stowage::cuda
