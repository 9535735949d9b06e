#include "src/device/cuda/open.h"

#include <fmt/core.h>

#include "src/base/mutex.h"
#include "src/device/cuda/check.h"
#include "src/device/cuda/cuda_device.h"
#include "stowage/error.h"

namespace stowage::cuda {
namespace {

struct Cards {
  int count = 0;
  std::string why_none;  // empty where there are some
};

Cards count_cards() {
  Cards cards;
  const cudaError_t answer = cudaGetDeviceCount(&cards.count);
  if (answer == cudaSuccess && cards.count > 0) return cards;
  cudaGetLastError();
  cards.count = 0;
  if (answer == cudaErrorInsufficientDriver) {
    cards.why_none = "no CUDA driver answers here, or one too old for this build: install NVIDIA's driver";
  } else if (answer == cudaErrorNoDevice || answer == cudaSuccess) {
    cards.why_none = "the CUDA driver sees no card: check nvidia-smi and CUDA_VISIBLE_DEVICES";
  } else {
    cards.why_none = fmt::format("cudaGetDeviceCount failed with {}: check nvidia-smi", describe(answer));
  }
  return cards;
}

std::string name_of(int ordinal) {
  cudaDeviceProp properties{};
  const cudaError_t answer = cudaGetDeviceProperties(&properties, ordinal);
  return answer == cudaSuccess ? properties.name : fmt::format("of unknown name, {}", describe(answer));
}

}  // namespace

CudaStatus status() {
  const Cards cards = count_cards();
  if (cards.count == 0) return {false, cards.why_none};
  return {true, fmt::format("the CUDA driver sees {} card{}, the first is {}", cards.count,
                            cards.count == 1 ? "" : "s", name_of(0))};
}

std::unique_ptr<Device> open_device(const CudaOptions& options) {
  const Cards cards = count_cards();
  if (cards.count == 0) throw InvalidInput(fmt::format("open: {}", cards.why_none));
  if (options.ordinal < 0 || options.ordinal >= cards.count)
    throw InvalidInput(fmt::format("open: there is no CUDA device {}; the driver counts {}, from 0",
                                   options.ordinal, cards.count));
  return std::make_unique<CudaDevice>(options);
}

}  // namespace stowage::cuda
