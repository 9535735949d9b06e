// HostWork: the functions that one host lane runs, as CUDA calls them back. They never call CUDA; what they
// throw is kept in the HostOrder.
//
// `prepare` and `cancel`: one caller at a time. `run` comes from CUDA's thread. Must outlive the last call of
// `run` for it. Items are used again, so that a periodic program soon allocates nothing.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/mutex.h"
#include "src/device/cuda/host_order.h"

namespace stowage::cuda {

class HostWork {
 public:
  // `description`: "host lane 3".
  HostWork(std::shared_ptr<HostOrder> order, LaneId lane, std::string description);
  HostWork(const HostWork&) = delete;
  HostWork& operator=(const HostWork&) = delete;

  // What to give to cudaLaunchHostFunc together with `run`.
  void* prepare(const Launch& launch);
  // It was not enqueued after all.
  void cancel(void* item);
  static void run(void* item);

 private:
  struct Item {
    HostWork* owner = nullptr;
    HostOrder::Clock clock;
    std::string name;
    void (*function)(void* context) = nullptr;
    void* context = nullptr;
  };
  void perform(const Item& item);
  void put_back(Item* item);

  const std::shared_ptr<HostOrder> order_;
  const LaneId lane_;
  const std::string description_;
  Mutex mutex_;
  std::vector<std::unique_ptr<Item>> items_ STOWAGE_GUARDED_BY(mutex_);
  std::vector<Item*> unused_ STOWAGE_GUARDED_BY(mutex_);
};

}  // namespace stowage::cuda
