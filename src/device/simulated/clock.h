// Seconds since the device was opened, on the steady clock.
#pragma once

#include <chrono>
#include <thread>

namespace stowage::simulated {

class SteadySeconds {
 public:
  double now() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  void sleep_until(double seconds) const {
    std::this_thread::sleep_until(
        start_ + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds)));
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

}  // namespace stowage::simulated
