// Allocators: what the functions of stowage/c_allocator.h do, which says what they promise. Every exception
// ends here: it becomes a status, and a text that `last_error` gives to the thread.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "allocator/c_api/device_allocator.h"
#include "src/base/mutex.h"
#include "stowage/c_allocator.h"

namespace stowage::c_api {

// Values of STOWAGE_LIMIT and the other variables; null or empty: not set.
struct Environment {
  const char* limit = nullptr;
  const char* history = nullptr;
  const char* plan_periods = nullptr;
};

class Allocators {
 public:
  using Open = std::function<std::unique_ptr<Device>(int ordinal)>;
  static constexpr int most_devices = 64;

  Allocators(Open open, const Environment& environment);
  Allocators(const Allocators&) = delete;
  Allocators& operator=(const Allocators&) = delete;
  ~Allocators();

  void* allocate(ssize_t bytes, int device, void* stream) noexcept;
  void release(void* address, int device, void* stream) noexcept;
  void record_stream(void* address, void* stream) noexcept;
  void empty_cache() noexcept;
  void set_memory_fraction(double fraction, int device) noexcept;
  int set_limit(int device, Bytes limit) noexcept;
  int set_history(std::size_t events) noexcept;
  int begin_iteration(int device) noexcept;
  int get_statistics(int device, stowage_statistics* statistics) noexcept;
  int reset_peaks(int device) noexcept;
  int snapshot(const char* path) noexcept;
  int forget_stream(int device, void* stream) noexcept;
  int begin_pool(int device, stowage_pool pool, StreamFilter wants) noexcept;
  // Begins a pool like begin_pool, with the filter that `make` returns. An exception of `make`
  // is the call's error.
  int begin_pool_of(int device, stowage_pool pool, const std::function<StreamFilter()>& make) noexcept;
  int end_pool(int device, stowage_pool pool) noexcept;
  int release_pool(int device, stowage_pool pool) noexcept;

  static const char* last_error() noexcept;
  static void clear_error() noexcept;
  // Prints the thread's latest error.
  static void print_error() noexcept;

 private:
  struct Settings {
    std::optional<Bytes> limit;
    std::optional<double> fraction;  // limit as a fraction of the device's memory
  };
  // Runs `call` and turns an exception into a status and the thread's error text.
  template <class Call>
  int guarded(Call&& call) noexcept;
  DeviceAllocator& at(int ordinal) STOWAGE_EXCLUDES(mutex_);  // opens the device if needed
  DeviceAllocator* find(int ordinal) const;                   // null: the device is not in use
  std::vector<std::pair<int, DeviceAllocator*>> all() const;
  std::unique_ptr<DeviceAllocator> open(int ordinal) STOWAGE_REQUIRES(mutex_);
  Bytes limit_of(int ordinal, Bytes total) const STOWAGE_REQUIRES(mutex_);
  void expect_ready() const;
  bool is_lost() const;  // true in a child process that was forked after a device was opened

  const Open open_;
  bool plans_periods_ = false;
  std::string environment_error_;
  std::atomic<std::uint64_t> born_{
      0};  // one more than the forks when the first device was opened; 0: none was
  std::array<std::atomic<DeviceAllocator*>, most_devices> devices_{};
  Mutex mutex_;
  Settings for_all_ STOWAGE_GUARDED_BY(mutex_);
  std::array<Settings, most_devices> settings_ STOWAGE_GUARDED_BY(mutex_);
  std::size_t history_ STOWAGE_GUARDED_BY(mutex_) = 0;
};

}  // namespace stowage::c_api
