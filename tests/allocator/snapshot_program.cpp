// snapshot_program PICKLE JSON: blocks of several sizes come and go on two streams and in a private pool of a
// simulated device; then what is there, and how it came to be, as both files.
#include <fstream>
#include <iostream>
#include <random>
#include <vector>

#include "stowage/allocator_snapshot.h"
#include "stowage/error.h"
#include "stowage/simulated_device.h"

namespace {

using namespace stowage;

struct Live {
  void* address = nullptr;
};

void churn(CachingAllocator& allocator, LaneId stream, std::mt19937& random, std::vector<Live>& live) {
  const Bytes sizes[] = {1, 700, 5000, 300_KiB, 3_MiB, 9_MiB};
  for (int step = 0; step < 400; ++step) {
    if (random() % 2 == 0 && !live.empty()) {
      const std::size_t which = random() % live.size();
      allocator.release_raw(live[which].address);
      live[which] = live.back();
      live.pop_back();
    } else if (live.size() < 12) {
      live.push_back({allocator.allocate_raw(sizes[random() % std::size(sizes)] + random() % 300, stream)});
    }
    if (step % 150 == 149) allocator.trim();
  }
}

void write(const char* path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  if (!(file << text).flush()) throw InvalidInput(std::string(path) + ": cannot be written");
}

void run(const char* pickle, const char* json) {
  const auto device = open_simulated_device({.capacity = 256_MiB, .executor = Executor::virtual_time});
  const Lane first(*device, LaneRole::compute), second(*device, LaneRole::compute);
  CachingAllocator allocator(*device, {.limit = 200_MiB, .history_entries = 500});
  std::mt19937 random(7);
  std::vector<Live> live[2], captured;
  const PoolId pool = allocator.create_pool();
  for (int round = 0; round < 3; ++round) {
    churn(allocator, first.id(), random, live[0]);
    churn(allocator, second.id(), random, live[1]);
    const PoolScope scope(allocator, second.id(), pool);
    captured.push_back({allocator.allocate_raw(70000, second.id())});
  }
  try {
    allocator.allocate_raw(1_GiB, first.id());
  } catch (const OutOfMemory&) {  // for its trace
  }
  const auto native = [](LaneId lane) { return 0x1000 + std::uint64_t{lane}; };
  const std::vector<DeviceSnapshot> devices{{1, allocator.snapshot(), native}};
  write(pickle, snapshot_pickle(devices));
  write(json, snapshot_json(devices));
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) return 2;
  try {
    run(arguments[1], arguments[2]);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
