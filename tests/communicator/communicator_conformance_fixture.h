// What each test of the suite in communicator_conformance.h has.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <optional>
#include <ostream>
#include <stdexcept>
#include <string>
#include <vector>

#include "stowage/communicator.h"
#include "stowage/error.h"
#include "stowage/simulated_device.h"

namespace stowage {

// One rank of a test, driven by its own thread or process. Device memory is reached by copies alone.
struct TestRank {
  Device& device;
  Communicator& communicator;
  int rank = communicator.rank();
  int size = communicator.size();
  Lane lane{device, LaneRole::compute}, h2d{device, LaneRole::h2d}, d2h{device, LaneRole::d2h};

  // The byte that a rank has at a place in some round.
  static std::byte pattern(int of_rank, Bytes place, int round) {
    return static_cast<std::byte>((static_cast<std::size_t>(of_rank) * 131 + place * 7 +
                                   static_cast<std::size_t>(round) * 29 + place / 251) &
                                  0xff);
  }
  static std::vector<std::byte> patterns(int of_rank, Bytes first, Bytes bytes, int round) {
    std::vector<std::byte> result(bytes);
    for (Bytes i = 0; i < bytes; ++i) result[i] = pattern(of_rank, first + i, round);
    return result;
  }

  // Both are done when they return.
  void put(std::byte* to, const std::vector<std::byte>& values) {
    if (values.empty()) return;
    const DeviceMemory pinned(device, MemoryKind::pinned, values.size());
    std::memcpy(pinned.data(), values.data(), values.size());
    device.copy(h2d.id(), to, pinned.data(), values.size(), "put");
    device.synchronise_lane(h2d.id());
  }
  std::vector<std::byte> get(const std::byte* from, Bytes bytes) {
    std::vector<std::byte> values(bytes);
    if (bytes == 0) return values;
    const DeviceMemory pinned(device, MemoryKind::pinned, bytes);
    device.copy(d2h.id(), pinned.data(), from, bytes, "get");
    device.synchronise_lane(d2h.id());
    std::memcpy(values.data(), pinned.data(), bytes);
    return values;
  }
  void order(const Lane& before, const Lane& after) {
    const Event event(device);
    device.record(event.id(), before.id());
    device.wait(after.id(), event.id());
  }
  void synchronise() { device.synchronise_lane(lane.id()); }
  // Fails the lane.
  void break_lane(const char* why) {
    Launch launch;
    launch.name = "broken";
    launch.function = [](void* text) { throw std::runtime_error(static_cast<const char*>(text)); };
    launch.context = const_cast<char*>(why);
    device.launch(lane.id(), launch);
  }

  // What the communicator has failed with once `calls` have been made and their work has ended.
  template <class Calls>
  std::optional<CommunicatorError> failure_behind(Calls&& calls) {
    ignoring_errors(calls);
    ignoring_errors([&] { synchronise(); });
    return failure();
  }
  template <class Calls>
  static void ignoring_errors(Calls&& calls) {
    try {
      calls();
    } catch (const Error&) {  // what it left behind is asked for later
    }
  }
  std::optional<CommunicatorError> failure() {
    try {
      communicator.check();
    } catch (const CommunicatorError& error) {
      return error;
    }
    return std::nullopt;
  }
  // It stays failed, in every call.
  void expect_final(std::byte* memory) {
    EXPECT_THROW(communicator.all_gather(lane.id(), memory, 0), CommunicatorError);
    EXPECT_THROW(communicator.exchange(lane.id(), memory, memory, 0), CommunicatorError);
    EXPECT_THROW(communicator.broadcast(lane.id(), 0, memory, 0), CommunicatorError);
    EXPECT_THROW(communicator.barrier(), CommunicatorError);
    EXPECT_THROW(communicator.check(), CommunicatorError);
  }
};

struct CommunicatorGroup {
  std::string name;
  int size = 1;
  // Devices see missing waits and fail when told to; the communicator compares the calls of all ranks.
  bool checked = true;
  // Runs `body` for each rank of a new group, and returns when all that run in this process have ended.
  std::function<void(const std::function<void(TestRank&)>& body)> run;
};

inline void PrintTo(const CommunicatorGroup& group, std::ostream* out) { *out << group.name; }
inline std::string group_name(const testing::TestParamInfo<CommunicatorGroup>& info) {
  return info.param.name;
}

// One rank's part: `body`, and the barrier at which ranks end.
inline void run_rank(Device& device, Communicator& communicator, const std::function<void(TestRank&)>& body) {
  TestRank rank{device, communicator};
  try {
    body(rank);
    if (!rank.failure()) communicator.barrier();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "rank " << rank.rank << ": " << error.what();
    communicator.abort(error.what());
    TestRank::ignoring_errors([&] { rank.synchronise(); });
  }
}

class CommunicatorConformance : public testing::TestWithParam<CommunicatorGroup> {
 protected:
  using Body = std::function<void(TestRank&)>;
  static void run(const Body& body) { GetParam().run(body); }
  static int size() { return GetParam().size; }
  static bool is_checked() { return GetParam().checked; }
  static Bytes times(int ranks, Bytes bytes) { return static_cast<Bytes>(ranks) * bytes; }
};

}  // namespace stowage
