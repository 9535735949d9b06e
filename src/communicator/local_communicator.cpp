#include <fmt/core.h>

#include <algorithm>

#include "src/communicator/local_transport.h"
#include "src/communicator/simulated_communicator.h"
#include "stowage/communicator.h"

namespace stowage {

std::vector<std::unique_ptr<Communicator>> make_local_communicators(std::span<Device* const> devices,
                                                                    const CommunicatorOptions& options) {
  constexpr const char* call = "make_local_communicators";
  if (devices.empty())
    throw InvalidInput(fmt::format("{}: there are no devices; give it at least one", call));
  for (std::size_t i = 0; i < devices.size(); ++i)
    if (devices[i] == nullptr || std::find(devices.begin(), devices.begin() + static_cast<std::ptrdiff_t>(i),
                                           devices[i]) != devices.begin() + static_cast<std::ptrdiff_t>(i))
      throw InvalidInput(
          fmt::format("{}: device {} is null or was given before; give each rank one of its own", call, i));
  const auto group =
      std::make_shared<communication::LocalGroup>(static_cast<int>(devices.size()), options.peer);
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (std::size_t i = 0; i < devices.size(); ++i)
    communicators.push_back(std::make_unique<communication::SimulatedCommunicator>(
        *devices[i], std::make_unique<communication::LocalTransport>(static_cast<int>(i), group), call));
  return communicators;
}

}  // namespace stowage
