// The state that all fakes share: settings, calls and faults.
//
// Streams' threads read of it only atomics, relaxed: a lock, or a release, would order their work, and
// hide a missing wait from the thread sanitizer.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/fake_cuda/fake_cuda.h"
#include "tests/fake_cuda/thread_order.h"

namespace fake_cuda {

struct Settings {
  fake_cuda_driver driver = fake_cuda_driver_present;
  std::size_t capacity = std::size_t{4} << 30;
  std::size_t context = std::size_t{64} << 20;
  bool virtual_memory = true;
  int cards = 1;
  std::vector<int> visible;  // of all cards, by CUDA_VISIBLE_DEVICES; empty: all are
  bool host_physical = true;
  std::optional<ThreadOrder> thread_order;            // none: by turns
  unsigned pending = 1024;                            // pieces of work that a stream holds at most
  std::size_t per_pinned_gib = std::size_t{2} << 20;  // page tables
  std::size_t per_mapping = 4096;
  std::size_t most_pinned = std::numeric_limits<std::size_t>::max();  // bytes at a time
};

// The number of a card among all, by its number among those that are visible.
inline int physical_card(const Settings& settings, int ordinal) {
  return settings.visible.empty() ? ordinal : settings.visible[static_cast<std::size_t>(ordinal)];
}

struct Fault {
  std::string name;  // empty: any
  unsigned remaining = 1;
  int error = 0;
  std::string behind = {};  // calls count once this one has been made; empty: from the first
};

class State {
 public:
  static State& get();

  Settings settings();
  template <class Change>
  void change_settings(Change change) {
    const std::lock_guard lock(mutex_);
    change(settings_);
  }

  // Counts a call. Returns 0 to go on, else the error that the call shall return without doing anything.
  int begin_call(const char* name, int unknown_error);
  void fail_call(const char* name, unsigned nth, int error);
  // Runs `body` on a thread of its own within the next call of `name`.
  void during_call(const char* name, std::function<void()> body);
  void run_meanwhile(const char* name);  // that body; begin_call does so, too
  unsigned calls(const char* name);
  std::vector<const char*> called();
  unsigned pending_faults();
  void forget_calls();
  void reset();

  // Called on a stream's thread: whether the next kernel runs. The card is lost where it does not.
  bool kernel_may_start();
  void fault_kernel(unsigned nth, int error);
  void make_context(int card);  // unless it has one
  bool has_context(int card);
  ThreadOrders next_orders();  // of the next launch
  int lost() const { return lost_.load(std::memory_order_relaxed); }

  std::atomic<unsigned> calls_from_host_functions = 0;
  std::atomic<unsigned> pageable_copies = 0;
  std::atomic<unsigned> pages_pinned_unfaulted = 0;
  std::atomic<std::uint64_t> virtual_nanoseconds = 0;
  std::atomic<unsigned> spinning_waits = 0;
  std::atomic<int> blas_objects = 0;
  std::atomic<int> driver_events = 0;
  std::atomic<bool> driver_work_held = false;
  std::atomic<unsigned> waiting_callers = 0;  // until a stream has room
  std::atomic<unsigned> patience_in_milliseconds;

 private:
  State();

  std::mutex mutex_;
  Settings settings_;
  std::vector<Fault> faults_;
  std::map<std::string, std::function<void()>> meanwhile_;  // by call
  std::map<std::string, unsigned> counts_;
  std::vector<const char*> order_;
  unsigned total_ = 0;
  unsigned launches_ = 0;
  std::set<int> contexts_;                      // cards
  std::atomic<unsigned> kernels_to_fault_ = 0;  // 0: none
  std::atomic<int> kernel_error_ = 0;
  std::atomic<int> lost_ = 0;
};

// Set while a stream's thread runs a host function.
inline thread_local bool in_host_function = false;

}  // namespace fake_cuda
