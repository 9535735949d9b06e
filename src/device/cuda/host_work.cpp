#include "src/device/cuda/host_work.h"

#include <fmt/core.h>
#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

namespace stowage::cuda {
namespace {

// Yields at first, then sleeps: a stream writes its mark within microseconds, or after milliseconds of other
// lanes' work, and then the core is free for threads that compute.
void wait_a_little(int before) {
  constexpr int without_sleep = 100;
  constexpr auto sleep = std::chrono::microseconds(20);
  if (before < without_sleep)
    std::this_thread::yield();
  else
    std::this_thread::sleep_for(sleep);
}

}  // namespace

// Sequential consistency: either this thread sees the waiting threads, or they see that the function has run.
void HostTurns::finish(std::uint32_t function) {
  finished.store(function, std::memory_order_seq_cst);
  if (waiting_.load(std::memory_order_seq_cst) == 0) return;
  const MutexLock lock(mutex_);
  changed_.notify_all();
}

bool HostTurns::await_function(std::uint32_t function, std::chrono::milliseconds most) {
  const MutexLock lock(mutex_);
  waiting_.fetch_add(1, std::memory_order_seq_cst);
  if (static_cast<std::int32_t>(finished.load(std::memory_order_seq_cst) - function) < 0)
    changed_.wait_for(mutex_, most);
  waiting_.fetch_sub(1, std::memory_order_relaxed);
  return has_finished(function);
}

HostWork::HostWork(std::shared_ptr<HostOrder> order, LaneId lane, std::string description,
                   std::shared_ptr<HostTurns> turns)
    : order_(std::move(order)),
      lane_(lane),
      description_(std::move(description)),
      turns_(std::move(turns)),
      last_mark_(turns_->reached),
      last_function_(turns_->finished),
      awaited_{.mark = last_mark_, .others = {}},
      thread_([this] { run(); }) {}

HostWork::~HostWork() {
  stop();
  // The next user of these turns counts on from here, and no stream waits for a function that never runs.
  turns_->reached = last_mark_;
  turns_->finish(last_function_);
}

void HostWork::stop() noexcept {
  {
    const MutexLock lock(mutex_);
    ends_ = true;
  }
  more_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void HostWork::await_mark(std::uint32_t mark) {
  awaited_.mark = mark;
  awaits_more_ = true;
}

void HostWork::await_function(std::shared_ptr<HostTurns> turns, std::uint32_t function) {
  if (turns->has_finished(function)) return;
  awaited_.others.push_back({std::move(turns), function});
  awaits_more_ = true;
}

void HostWork::submit(const Launch& launch) { submit(launch, nullptr); }

void HostWork::submit(const Launch& launch, std::shared_ptr<HostMoment> moment) {
  Item& item = unused();
  item.name = launch.name;
  item.function = launch.function;
  item.context = launch.context;
  item.moment = std::move(moment);
  order_->enqueue(lane_, item.clock);
  item.awaits.mark = awaited_.mark;
  std::swap(item.awaits.others, awaited_.others);
  awaits_more_ = false;
  item.number = ++last_function_;
  item.next = nullptr;
  {
    const MutexLock lock(mutex_);
    (oldest_ == nullptr ? oldest_ : newest_->next) = &item;
    newest_ = &item;
  }
  more_.notify_one();
}

std::uint32_t HostWork::point() {
  if (awaits_more_) submit({"wait", [](void*) {}, nullptr, {}, 0});
  return last_function_;
}

std::uint32_t HostWork::point(std::shared_ptr<HostMoment> moment) {
  submit({"time", [](void*) {}, nullptr, {}, 0}, std::move(moment));
  return last_function_;
}

void HostWork::finish() {
  const std::uint32_t last = point();
  bool done = false;
  while (!done) done = turns_->await_function(last, std::chrono::milliseconds(5));
}

HostWork::Item& HostWork::unused() {
  const MutexLock lock(mutex_);
  if (unused_.empty()) {
    items_.push_back(std::make_unique<Item>());
    unused_.reserve(items_.size());  // so that putting back cannot fail
    unused_.push_back(items_.back().get());
  }
  Item& item = *unused_.back();
  unused_.pop_back();
  return item;
}

void HostWork::put_back(Item& item) {
  item.awaits.others.clear();
  item.moment.reset();
  const MutexLock lock(mutex_);
  unused_.push_back(&item);
}

void HostWork::run() {
  ::prctl(PR_SET_TIMERSLACK, 1000UL);  // nanoseconds: short sleeps are short
  while (Item* const item = take()) {
    if (!comes_to_turn(*item)) return;
    perform(*item);
    if (item->moment != nullptr) *item->moment = HostClock::now();
    const std::uint32_t number = item->number;
    put_back(*item);
    turns_->finish(number);
  }
}

// Returns the next item; null at the end.
HostWork::Item* HostWork::take() {
  const MutexLock lock(mutex_);
  while (!ends_ && oldest_ == nullptr) more_.wait(mutex_);
  if (ends_) return nullptr;
  return std::exchange(oldest_, oldest_->next);
}

bool HostWork::comes_to_turn(const Item& item) const {
  const auto may_begin = [&] {
    return turns_->has_reached(item.awaits.mark) &&
           std::all_of(item.awaits.others.begin(), item.awaits.others.end(),
                       [](const Function& other) { return other.turns->has_finished(other.number); });
  };
  for (int before = 0; !may_begin(); ++before) {
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

}  // namespace stowage::cuda
