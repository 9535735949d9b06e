// The CUDA backend: a module that is loaded on first use, so that programs start where there is no driver. It
// is looked for in the file that the environment variable STOWAGE_CUDA_BACKEND names, then in ../lib/stowage
// beside the program, then in stowage beside the library that this code was linked into, then where it was
// built.
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "stowage/bytes.h"
#include "stowage/device.h"
#include "stowage/launch_table.h"

namespace stowage {

struct CudaOptions {
  int ordinal = 0;  // number of the card among those that the CUDA runtime sees
  // True: device memory by cuMemMap if the driver has it. False, or without it: cudaMalloc, and `reserve`
  // throws InvalidInput.
  bool virtual_memory = true;
  // True: calls leave the calling thread's current CUDA device unchanged if that device has a context.
  // Otherwise calls make this device current.
  bool keeps_current_device = false;
  Bytes scratch = 32 << 20;  // per compute lane: GEMM workspace and partial sums; part of `overhead`
};

struct CudaStatus {
  bool available = false;  // a driver and a card answer
  std::string reason;      // the cards that were found, or why none and what to do
  // The UUID of each card that this process sees, in the order of ordinals, as nvidia-smi -L prints them; ""
  // for a card that does not tell it. An empty list if no card is available.
  std::vector<std::string> cards = {};
};

CudaStatus cuda_status();

// Opens a card as a Device: lanes are non-blocking streams; the host lane is a stream of host functions. On
// compute lanes `launch` calls the function at once, which enqueues on `native_stream`. After a failed host
// function later host functions are skipped, as the contract says, but kernels and copies run; the next
// synchronise behind it reports the failure. Accesses are only checked to lie in live allocations
// (AccessViolation). A fault of the card itself is sticky: every later call throws DeviceError until the
// process ends. Throws InvalidInput with the reason where there is no such card or STOWAGE_ATTENTION is
// wrong, DeviceError, OutOfMemory.
std::unique_ptr<Device> open_cuda_device(const CudaOptions& options = {});

// How the attention ops of this process were computed on its cards: launches by method, forward and backward
// alike. A method's bits differ from another's. STOWAGE_ATTENTION=cudnn, own or auto (the default) says which
// methods may be used for bf16 and f16; any other value makes open_cuda_device throw InvalidInput.
struct AttentionUse {
  std::uint64_t cudnn = 0;  // launches of cuDNN's fused kernels
  std::uint64_t own = 0;    // launches of Stowage's kernels for bf16 and f16
  std::uint64_t plain = 0;  // launches of Stowage's kernels for f32, in plain arithmetic
  // Why cuDNN did not compute a shape that it might have: a sentence for each shape and direction, in order
  // of appearance. The refusals go to stderr, too.
  std::vector<std::string> refusals;
};

// Counts since the process began; zero if no card was opened.
AttentionUse attention_use();

// Kernels for the compute lane of a CUDA device, work types f32, bf16 and f16 (f64: InvalidInput at launch).
// Throws InvalidInput as above.
LaunchTable cuda_launch_table();

// Returns the launch table for a device's compute lane, by the device's backend. Host lanes always use
// cpu_launch_table().
LaunchTable launch_table_for(const Device& device);

}  // namespace stowage
