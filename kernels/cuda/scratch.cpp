#include "kernels/cuda/scratch.h"

#include <fmt/core.h>

#include "src/device/cuda/lane_resources.h"
#include "stowage/error.h"

namespace stowage::cuda {
namespace {

constexpr std::size_t kept_bytes = 256;

[[noreturn]] void refuse(const char* user, std::size_t wanted, const LaneResources& lane) {
  throw InvalidInput(fmt::format("{}: needs {} bytes of scratch, the lane has {}; raise CudaOptions::scratch",
                                 user, wanted, lane.scratch_bytes));
}

}  // namespace

std::size_t usable_scratch(const LaneResources& lane) {
  if (lane.scratch_bytes < kept_bytes) return 0;
  return (lane.scratch_bytes - kept_bytes) / kept_bytes * kept_bytes;  // what is kept behind it is aligned
}

void* scratch_bytes(void* stream, std::size_t bytes, const char* user) {
  const LaneResources& lane = lane_resources(stream);
  if (bytes > usable_scratch(lane)) refuse(user, bytes + kept_bytes, lane);
  return lane.scratch;
}

void* kept_scratch(void* stream, const char* user) {
  const LaneResources& lane = lane_resources(stream);
  if (lane.scratch_bytes < kept_bytes) refuse(user, kept_bytes, lane);
  return static_cast<std::byte*>(lane.scratch) + usable_scratch(lane);
}

}  // namespace stowage::cuda
