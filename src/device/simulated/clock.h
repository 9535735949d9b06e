// Clock: seconds since the device was opened.
#pragma once

#include <chrono>
#include <thread>

namespace stowage::simulated {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual double now() const = 0;
  virtual void sleep_until(double seconds) const = 0;
};

class SteadyClock final : public Clock {
 public:
  double now() const override { return std::chrono::duration<double>(Steady::now() - start_).count(); }
  void sleep_until(double seconds) const override {
    const std::chrono::duration<double> since_start(seconds);
    std::this_thread::sleep_until(start_ + std::chrono::duration_cast<Steady::duration>(since_start));
  }

 private:
  using Steady = std::chrono::steady_clock;
  Steady::time_point start_ = Steady::now();
};

}  // namespace stowage::simulated
