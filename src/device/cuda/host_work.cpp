#include "src/device/cuda/host_work.h"

#include <fmt/core.h>
#include <sys/prctl.h>

#include <chrono>
#include <exception>
#include <utility>

namespace stowage::cuda {
namespace {

bool is_reached(std::uint32_t now, std::uint32_t turn) { return static_cast<std::int32_t>(now - turn) >= 0; }

// The stream comes to what is next in some microseconds, or after other lanes' milliseconds: soon the thread
// leaves its core to those that compute.
void wait_a_little(int before) {
  constexpr int without_sleep = 100;
  constexpr auto sleep = std::chrono::microseconds(20);
  if (before < without_sleep)
    std::this_thread::yield();
  else
    std::this_thread::sleep_for(sleep);
}

}  // namespace

HostWork::HostWork(std::shared_ptr<HostOrder> order, LaneId lane, std::string description,
                   std::shared_ptr<HostTurns> turns)
    : order_(std::move(order)),
      lane_(lane),
      description_(std::move(description)),
      turns_(std::move(turns)),
      last_turn_(turns_->finished.load()),
      thread_([this] { run(); }) {}

HostWork::~HostWork() {
  {
    const MutexLock lock(mutex_);
    ends_ = true;
  }
  more_.notify_all();
  thread_.join();
  // Whoever uses these turns next goes on from here.
  turns_->finished = turns_->reached = last_turn_;
}

HostWork::Item& HostWork::prepare(const Launch& launch) {
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
  item->name = launch.name;
  item->function = launch.function;
  item->context = launch.context;
  order_->enqueue(lane_, item->clock);
  return *item;
}

bool HostWork::join(Item& item) noexcept {
  const MutexLock lock(mutex_);
  if (!joins_ || !open_) return false;
  push(item);
  return true;
}

void HostWork::submit(Item& item) noexcept {
  {
    const MutexLock lock(mutex_);
    push(item);
    open_ = joins_ = true;
  }
  more_.notify_one();
}

void HostWork::push(Item& item) noexcept {
  item.turn = last_turn_;
  item.next = nullptr;
  (oldest_ == nullptr ? oldest_ : newest_->next) = &item;
  newest_ = &item;
}

void HostWork::cancel(Item& item) noexcept {
  joins_ = false;
  put_back(item);
}

void HostWork::run() {
  ::prctl(PR_SET_TIMERSLACK, 1000UL);  // nanoseconds: short sleeps are short
  while (Item* item = take()) {
    const std::uint32_t turn = item->turn;
    if (!comes_to(turn)) return;
    for (; item != nullptr; item = take_of(turn)) {
      perform(*item);
      put_back(*item);
    }
    turns_->finished.store(turn, std::memory_order_release);
  }
}

// Null at the end.
HostWork::Item* HostWork::take() {
  const MutexLock lock(mutex_);
  while (!ends_ && oldest_ == nullptr) more_.wait(mutex_);
  if (ends_) return nullptr;
  return std::exchange(oldest_, oldest_->next);
}

// Null where the turn has no more: it ends.
HostWork::Item* HostWork::take_of(std::uint32_t turn) {
  const MutexLock lock(mutex_);
  if (oldest_ != nullptr && oldest_->turn == turn) return std::exchange(oldest_, oldest_->next);
  if (oldest_ == nullptr) open_ = false;
  return nullptr;
}

bool HostWork::comes_to(std::uint32_t turn) const {
  for (int before = 0; !is_reached(turns_->reached.load(std::memory_order_acquire), turn); ++before) {
    if (ends_) return false;
    wait_a_little(before);
  }
  return true;
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

void HostWork::put_back(Item& item) noexcept {
  const MutexLock lock(mutex_);
  unused_.push_back(&item);
}

}  // namespace stowage::cuda
