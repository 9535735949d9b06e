// Laps: wall seconds of the phases of a run, for people; nothing decides by them.
#pragma once

#include <chrono>
#include <utility>

namespace stowage {

class Laps {
 public:
  // Seconds since the last call, or since it was made.
  double lap() {
    const Clock::time_point now = Clock::now();
    return std::chrono::duration<double>(now - std::exchange(last_, now)).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point last_ = Clock::now();
};

}  // namespace stowage
