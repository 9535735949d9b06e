#include "src/device/cuda/lane_resources.h"

#include <fmt/core.h>

#include <map>

#include "src/base/mutex.h"
#include "src/device/cuda/check.h"
#include "stowage/error.h"

namespace stowage::cuda {
namespace {

class LaneTable {
 public:
  void add(LaneResources& resources) STOWAGE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    lanes_[resources.stream] = &resources;
  }
  void remove(void* stream) STOWAGE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    lanes_.erase(stream);
  }
  LaneResources* find(void* stream) STOWAGE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    const auto found = lanes_.find(stream);
    return found == lanes_.end() ? nullptr : found->second;
  }

 private:
  Mutex mutex_;
  std::map<void*, LaneResources*> lanes_ STOWAGE_GUARDED_BY(mutex_);
};

LaneTable& lane_table() {
  static auto& table = *new LaneTable;  // used until the process has ended
  return table;
}

}  // namespace

LaneResources::LaneResources(int device_ordinal, Bytes scratch_size)
    : ordinal(device_ordinal), scratch_bytes(scratch_size) {
  const Doing doing{"create_lane", {}, ordinal, scratch_bytes};
  if (scratch_bytes > 0) check(cudaMalloc(&scratch, scratch_bytes), "cudaMalloc", doing);
  cublasLtHandle_t handle = nullptr;
  const cublasStatus_t created = cublasLtCreate(&handle);
  if (created != CUBLAS_STATUS_SUCCESS) {
    cudaFree(scratch);
    fail_cublas(created, "cublasLtCreate", {"create_lane", {}, ordinal});
  }
  cublas_lt = handle;
}

LaneResources::~LaneResources() {
  attention.reset();
  cublasLtDestroy(static_cast<cublasLtHandle_t>(cublas_lt));
  cudaFree(scratch);
}

LaneResources& lane_resources(void* stream) {
  LaneResources* const found = lane_table().find(stream);
  if (found == nullptr)
    throw InvalidInput(fmt::format(
        "kernels: {} is not the stream of a compute lane; pass Device::native_stream of one", stream));
  return *found;
}

void register_lane(LaneResources& resources) { lane_table().add(resources); }

void unregister_lane(void* stream) noexcept { lane_table().remove(stream); }

}  // namespace stowage::cuda
