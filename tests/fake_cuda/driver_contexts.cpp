// libcuda: contexts, which take along what was allocated in them.
#include <mutex>
#include <vector>

#include "tests/fake_cuda/capture.h"
#include "tests/fake_cuda/driver_call.h"
#include "tests/fake_cuda/driver_memory.h"
#include "tests/fake_cuda/driver_objects.h"

using fake_cuda::current_context;
using fake_cuda::driver_call;
using fake_cuda::give;
using fake_cuda::objects;
using fake_cuda::primary_context;
using fake_cuda::release_all_of;
using fake_cuda::State;

namespace {

thread_local CUcontext current = nullptr;   // null: the primary one
thread_local std::vector<CUcontext> below;  // contexts that others were pushed upon

}  // namespace

CUcontext fake_cuda::current_context() { return current == nullptr ? primary_context() : current; }

extern "C" {

CUresult cuCtxCreate_v4(CUcontext* context, CUctxCreateParams*, unsigned, CUdevice) {
  return driver_call(__func__, [&] {
    const std::lock_guard lock(objects().mutex);
    current = reinterpret_cast<CUcontext>(*objects().contexts.insert(new char).first);
    return give(context, current);
  });
}

CUresult cuCtxDestroy_v2(CUcontext context) {
  return driver_call(__func__, [&] {
    char* const known = reinterpret_cast<char*>(context);
    {
      const std::lock_guard lock(objects().mutex);
      if (objects().contexts.erase(known) == 0) return CUDA_ERROR_INVALID_CONTEXT;
    }
    release_all_of(context, false);
    if (current == context) current = nullptr;
    delete known;
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* to, CUdevice) {
  return driver_call(__func__, [&] {
    const std::lock_guard lock(objects().mutex);
    ++objects().primary_users;
    return give(to, primary_context());
  });
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) {
  return driver_call(__func__, [] {
    bool last = false;
    {
      const std::lock_guard lock(objects().mutex);
      last = objects().primary_users > 0 && --objects().primary_users == 0;
    }
    if (last) release_all_of(primary_context(), true);
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice) {
  return driver_call(__func__, [] {
    release_all_of(primary_context(), true);
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxGetState(CUdevice, unsigned* flags, int* active) {
  return driver_call(__func__, [&] {
    if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const std::lock_guard lock(objects().mutex);
    *flags = 0;
    *active = objects().primary_users > 0 ? 1 : 0;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetCurrent(CUcontext* to) {
  return driver_call(__func__, [&] { return give(to, current_context()); });
}

CUresult cuCtxSetCurrent(CUcontext context) {
  return driver_call(__func__, [&] {
    current = context;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
  return driver_call(__func__, [&] {
    const std::lock_guard lock(objects().mutex);
    if (context != primary_context() && !objects().contexts.contains(reinterpret_cast<char*>(context)))
      return CUDA_ERROR_INVALID_CONTEXT;
    below.push_back(current);
    current = context;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  return driver_call(__func__, [&] {
    if (below.empty()) return CUDA_ERROR_INVALID_CONTEXT;
    if (context != nullptr) *context = current;
    current = below.back();
    below.pop_back();
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxSynchronize() {
  return driver_call(__func__, [] {
    if (const int forbidden = fake_cuda::Captures::get().forbids_waiting_for_all())
      return static_cast<CUresult>(forbidden);
    State::get().driver_work_held = false;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetDevice(CUdevice* device) {
  return driver_call(__func__, [&] { return give(device, 0); });
}
}

// The same under older names.
CUresult fake_primary_ctx_release_v1(CUdevice device) { return cuDevicePrimaryCtxRelease_v2(device); }
CUresult fake_primary_ctx_reset_v1(CUdevice device) { return cuDevicePrimaryCtxReset_v2(device); }
CUresult fake_ctx_destroy_v1(CUcontext context) { return cuCtxDestroy_v2(context); }
