// Both executors as a test parameter, and how its values print.
#pragma once

#include <gtest/gtest.h>

#include <ostream>
#include <string>

#include "stowage/simulated_device.h"

namespace stowage {

inline std::string executor_name(Executor executor) {
  return executor == Executor::threaded ? "threaded" : "virtual_time";
}
inline void PrintTo(Executor executor, std::ostream* out) { *out << executor_name(executor); }
inline void PrintTo(Fault::Kind kind, std::ostream* out) {
  *out << (kind == Fault::Kind::call ? "call" : "work");
}
inline auto both_executors() { return testing::Values(Executor::threaded, Executor::virtual_time); }

}  // namespace stowage
