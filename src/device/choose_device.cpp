#include "stowage/choose_device.h"

#include <fmt/core.h>

#include <charconv>
#include <optional>
#include <string_view>

#include "stowage/error.h"

namespace stowage {
namespace {

// Returns the ordinal of the card that "cuda" or "cuda:N" names.
std::optional<int> ordinal_named(std::string_view name) {
  constexpr std::string_view prefix = "cuda:";
  if (name == "cuda") return 0;
  if (!name.starts_with(prefix)) return std::nullopt;
  const std::string_view digits = name.substr(prefix.size());
  int ordinal = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), ordinal);
  if (error != std::errc{} || end != digits.data() + digits.size() || ordinal < 0) return std::nullopt;
  return ordinal;
}

BackendChoice choose_automatically() {
  const CudaStatus status = cuda_status();
  if (status.available)
    return {DeviceBackend::cuda, 0, fmt::format("CUDA device 0, because {}", status.reason)};
  return {DeviceBackend::simulated, 0, fmt::format("the simulated device, because {}", status.reason)};
}

}  // namespace

BackendChoice choose_device(const std::string& name) {
  if (name == "simulated") return {DeviceBackend::simulated, 0, "the simulated device, as asked"};
  if (name == "auto") return choose_automatically();
  const std::optional<int> ordinal = ordinal_named(name);
  if (!ordinal)
    throw InvalidInput(fmt::format(
        "device '{}': unknown; ask for auto, cuda, cuda:N (N counts cards from 0) or simulated", name));
  const CudaStatus status = cuda_status();
  if (!status.available)
    throw InvalidInput(
        fmt::format("device '{}': {}. Or ask for the simulated device, or auto", name, status.reason));
  return {DeviceBackend::cuda, *ordinal,
          fmt::format("CUDA device {}, as asked; {}", *ordinal, status.reason)};
}

ChosenDevice open_device(const DeviceRequest& request) {
  const BackendChoice choice = choose_device(request.name);
  if (choice.backend == DeviceBackend::simulated)
    return {open_simulated_device(request.simulated), choice.reason};
  CudaOptions options = request.cuda;
  options.ordinal = choice.ordinal;
  return {open_cuda_device(options), choice.reason};
}

}  // namespace stowage
