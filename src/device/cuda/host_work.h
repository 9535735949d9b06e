// HostWork: the functions that one host lane runs, each at its turn in the lane's stream, on a thread of its
// own. They never call CUDA; what they throw is kept in the HostOrder.
//
// The stream tells the thread that a function's turn has come, and waits until it has run, by writing and
// reading two words of memory: `enqueue` has a stream do that. (cudaLaunchHostFunc makes its caller wait once
// some thirty functions of a stream are pending, and a step has hundreds: what the caller would enqueue
// behind them, for other streams, starts too late.)
//
// `prepare`, `submit` and `cancel`: one caller at a time.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "src/device/cuda/host_order.h"

namespace stowage::cuda {

// Numbers of functions, compared as those of a circle. In memory that both the card and the host read and
// write.
struct HostTurns {
  alignas(64) std::atomic<std::uint32_t> reached = 0;   // by the stream
  alignas(64) std::atomic<std::uint32_t> finished = 0;  // by the host
};

class HostWork {
 public:
  struct Item {
    std::uint32_t number = 0;
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

  // The next function and its number. The stream is to write that number to `reached`, and then to wait until
  // `finished` is not before it.
  Item& prepare(const Launch& launch);
  // The stream will do so.
  void submit(Item& item) noexcept;
  // It will not wait.
  void cancel(Item& item) noexcept;

 private:
  void run();
  Item* take();
  bool comes_to_turn(std::uint32_t number) const;
  void perform(const Item& item);
  void put_back(Item& item) noexcept;

  const std::shared_ptr<HostOrder> order_;
  const LaneId lane_;
  const std::string description_;
  const std::shared_ptr<HostTurns> turns_;
  std::uint32_t last_number_;
  std::atomic<bool> ends_ = false;
  std::mutex mutex_;  // of what follows
  std::condition_variable more_;
  Item* oldest_ = nullptr;
  Item* newest_ = nullptr;
  std::vector<std::unique_ptr<Item>> items_;  // a periodic program soon allocates none
  std::vector<Item*> unused_;
  std::thread thread_;  // last: it uses the others
};

}  // namespace stowage::cuda
