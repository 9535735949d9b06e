#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "bench/gpu_check/op_times.h"
#include "stowage/caching_allocator.h"
#include "tools/calibrate/stopwatch.h"

namespace stowage::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int rounds = 3;
constexpr Bytes block = 64_KiB;

double since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// Times of single calls, clock time included. Prints medians.
struct Times {
  std::vector<double> request, release;
  nlohmann::ordered_json json(const char* by, const char* what, Bytes bytes, int round) {
    return {{"kind", "allocator"},
            {"by", by},
            {"what", what},
            {"bytes", bytes},
            {"round", round},
            {"request_seconds", median(std::move(request))},
            {"release_seconds", median(std::move(release))}};
  }
};

template <class Request, class Release>
Times timed(int count, Request request, Release release) {
  Times times;
  for (int i = 0; i < count; ++i) {
    Clock::time_point begin = Clock::now();
    void* const address = request();
    times.request.push_back(since(begin));
    begin = Clock::now();
    release(address);
    times.release.push_back(since(begin));
  }
  return times;
}

class Ours {
 public:
  explicit Ours(Device& device) : lane_(device, LaneRole::compute), allocator_(device) {}
  static constexpr const char* name = "stowage";
  Times hits(int count) {
    allocator_.release_raw(request(block));
    return timed(
        count, [&] { return request(block); }, [&](void* at) { allocator_.release_raw(at); });
  }
  // Each request maps its memory; the release gives it back to the device.
  Times maps(Bytes bytes, int count) {
    return timed(
        count, [&] { return request(bytes); },
        [&](void* at) {
          allocator_.release_raw(at);
          allocator_.trim();
        });
  }

 private:
  void* request(Bytes bytes) { return allocator_.allocate_raw(bytes, lane_.id()); }
  Lane lane_;
  CachingAllocator allocator_;
};

// The driver's own pool of a stream. Once a stream has been waited for, the pool keeps no freed memory unless
// told to.
class Pool {
 public:
  explicit Pool(Device& device)
      : device_(device),
        lane_(device, LaneRole::compute),
        stream_(static_cast<cudaStream_t>(device.native_stream(lane_.id()))) {}
  static constexpr const char* name = "cudaMallocAsync";
  bool works() {
    void* const at = request(block);
    if (at != nullptr) release(at);
    cudaGetLastError();
    return at != nullptr;
  }
  Times hits(int count) {
    release(request(block));
    return timed(
        count, [&] { return request(block); }, [&](void* at) { release(at); });
  }
  Times maps(Bytes bytes, int count) {
    return timed(
        count, [&] { return request(bytes); },
        [&](void* at) {
          release(at);
          device_.synchronise_lane(lane_.id());  // here the pool gives back what nobody uses
        });
  }

 private:
  void* request(Bytes bytes) {
    void* address = nullptr;
    return cudaMallocAsync(&address, bytes, stream_) == cudaSuccess ? address : nullptr;
  }
  void release(void* address) { cudaFreeAsync(address, stream_); }
  Device& device_;
  Lane lane_;
  cudaStream_t stream_;
};

template <class Allocator>
void one_round(Allocator& of, bool small, int round, const PrintTimes& print) {
  print(of.hits(small ? 100 : 100'000).json(of.name, "served by the cache", block, round));
  for (const Bytes bytes : {2_MiB, 32_MiB, small ? 64_MiB : 1_GiB})
    print(of.maps(bytes, small ? 2 : 20).json(of.name, "new memory", bytes, round));
}

}  // namespace

void time_allocator(Device& device, bool small, const PrintTimes& print) {
  Ours ours(device);
  Pool pool(device);
  const bool has_pool = pool.works();
  for (int round = 0; round < rounds; ++round) {
    one_round(ours, small, round, print);
    if (has_pool) one_round(pool, small, round, print);
  }
}

}  // namespace stowage::bench
