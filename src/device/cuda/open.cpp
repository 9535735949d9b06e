
#include <fmt/core.h>

#include <string>
#include <utility>

#include "src/base/mutex.h"
#include "src/device/backend_module.h"
#include "src/device/cuda/check.h"
#include "src/device/cuda/cuda_device.h"
#include "stowage/error.h"

namespace stowage::cuda {
namespace {

struct Cards {
  int count = 0;
  std::string why_none;  // reason that there is no card; empty: there are some
};

Cards count_cards() {
  Cards cards;
  const cudaError_t answer = cudaGetDeviceCount(&cards.count);
  if (answer == cudaSuccess && cards.count > 0) return cards;
  cudaGetLastError();
  cards.count = 0;
  if (answer == cudaErrorInsufficientDriver) {
    cards.why_none = no_driver;
  } else if (answer == cudaErrorNoDevice || answer == cudaSuccess) {
    cards.why_none = "the CUDA driver sees no card: check nvidia-smi and CUDA_VISIBLE_DEVICES";
  } else {
    cards.why_none = fmt::format("cudaGetDeviceCount failed with {}: check nvidia-smi", describe(answer));
  }
  return cards;
}

constexpr int oldest_major = 8;  // oldest compute capability that the kernels are built for

struct Card {
  std::string name;
  std::string why_not;    // reason that the card cannot be used; empty: it can be
  std::string uuid = {};  // empty: not known
};

// "GPU-8a3f0c51-…".
std::string text_of(const cudaUUID_t& uuid) {
  std::string text = "GPU";
  for (std::size_t i = 0; i < sizeof uuid.bytes; ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", static_cast<unsigned char>(uuid.bytes[i]));
  }
  return text;
}

Card card(int ordinal) {
  cudaDeviceProp properties{};
  const cudaError_t answer = cudaGetDeviceProperties(&properties, ordinal);
  if (answer != cudaSuccess) {
    cudaGetLastError();
    return {"of unknown name",
            fmt::format("cudaGetDeviceProperties failed with {}: check nvidia-smi", describe(answer))};
  }
  Card found{properties.name, {}, text_of(properties.uuid)};
  if (properties.major < oldest_major) {
    found.why_not =
        fmt::format("{} has compute capability {}.{}, and this build's kernels need {}.0: use a newer card",
                    found.name, properties.major, properties.minor, oldest_major);
  }
  return found;
}

}  // namespace

CudaStatus status() {
  const Cards cards = count_cards();
  if (cards.count == 0) return {false, cards.why_none};
  const Card first = card(0);
  if (!first.why_not.empty()) return {false, first.why_not};
  CudaStatus status{true, fmt::format("the CUDA driver sees {} card{}, the first is {}", cards.count,
                                      cards.count == 1 ? "" : "s", first.name)};
  status.cards.push_back(first.uuid);
  for (int i = 1; i < cards.count; ++i) status.cards.push_back(card(i).uuid);
  return status;
}

std::unique_ptr<Device> open_device(const CudaOptions& options) {
  const Cards cards = count_cards();
  if (cards.count == 0) throw InvalidInput(fmt::format("open: {}", cards.why_none));
  if (options.ordinal < 0 || options.ordinal >= cards.count)
    throw InvalidInput(fmt::format("open: there is no CUDA device {}; the driver counts {}, from 0",
                                   options.ordinal, cards.count));
  if (const Card wanted = card(options.ordinal); !wanted.why_not.empty())
    throw InvalidInput(fmt::format("open: {}", wanted.why_not));
  return std::make_unique<CudaDevice>(options);
}

}  // namespace stowage::cuda
