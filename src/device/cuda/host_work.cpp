#include "src/device/cuda/host_work.h"

#include <fmt/core.h>

#include <exception>
#include <utility>

namespace stowage::cuda {

HostWork::HostWork(std::shared_ptr<HostOrder> order, LaneId lane, std::string description)
    : order_(std::move(order)), lane_(lane), description_(std::move(description)) {}

void* HostWork::prepare(const Launch& launch) {
  Item* item = nullptr;
  {
    const MutexLock lock(mutex_);
    if (unused_.empty()) {
      items_.push_back(std::make_unique<Item>());
      unused_.reserve(items_.size());  // so that putting back cannot fail
      unused_.push_back(items_.back().get());
    }
    item = unused_.back();
    unused_.pop_back();
  }
  item->owner = this;
  item->name = launch.name;
  item->function = launch.function;
  item->context = launch.context;
  order_->enqueue(lane_, item->clock);
  return item;
}

void HostWork::cancel(void* item) { put_back(static_cast<Item*>(item)); }

void HostWork::run(void* item) {
  auto* const work = static_cast<Item*>(item);
  HostWork* const owner = work->owner;
  owner->perform(*work);
  owner->put_back(work);
}

void HostWork::perform(const Item& item) {
  if (!order_->may_run(lane_, item.clock)) return;
  std::string why;
  try {
    item.function(item.context);
    return;
  } catch (const std::exception& error) {
    why = error.what();
  } catch (...) {
    why = "an exception that is no std::exception";
  }
  order_->fail(lane_, item.clock,
               {fmt::format("launch '{}' on {} failed: {}. Synchronise every lane to clear the failure, then "
                            "repeat the work",
                            item.name, description_, why),
                item.name});
}

void HostWork::put_back(Item* item) {
  const MutexLock lock(mutex_);
  unused_.push_back(item);
}

}  // namespace stowage::cuda
