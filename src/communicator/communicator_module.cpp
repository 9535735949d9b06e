#include "src/communicator/communicator_module.h"

#include <fmt/core.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "src/base/module_file.h"
#include "src/communicator/simulated_communicator.h"
#include "src/device/backend_module.h"

namespace stowage {
namespace communication {

namespace fs = std::filesystem;

const ModuleHead& load_module(const ModuleKind& kind, const std::vector<fs::path>& candidates) {
  const fs::path path = first_that_exists(candidates);
  if (path.empty())
    throw InvalidInput(fmt::format("{} is not there (looked for {}): {}, or name the file in {}", kind.name,
                                   joined_paths(candidates), kind.build, kind.environment));
  const ModuleEntry found = load_entry(path, kind.entry);
  if (!found.loaded) {
    const bool lacks = found.error.find(kind.needs) != std::string::npos;
    throw InvalidInput(fmt::format("{} {} does not load ({}): {}", kind.name, path.string(), found.error,
                                   lacks ? kind.install : "build and install this version of Stowage anew"));
  }
  if (found.address == nullptr)
    throw InvalidInput(fmt::format("{} is not {} of Stowage ({}): name another in {}", path.string(),
                                   kind.name, found.error, kind.environment));
  const ModuleHead& module = *reinterpret_cast<const ModuleHead* (*)()>(found.address)();
  if (module.abi != kind.abi || std::strcmp(module.version, backend_module_version()) != 0)
    throw InvalidInput(
        fmt::format("{} {} is of another build than this program (interface {}, '{}'): build both together",
                    kind.name, path.string(), kind.abi, backend_module_version()));
  return module;
}

const ModuleHead& load_module(const ModuleKind& kind) {
  const auto here =
      reinterpret_cast<const void*>(static_cast<const ModuleHead& (*)(const ModuleKind&)>(&load_module));
  return load_module(kind, module_candidates(kind.file, std::getenv(kind.environment), program_path(),
                                             library_path(here), STOWAGE_MODULE_DIR));
}

const MpiModule& load_mpi_module() {
  static const auto& module = static_cast<const MpiModule&>(load_module(mpi_module));
  return module;
}

}  // namespace communication

std::unique_ptr<Communicator> open_mpi_communicator(Device& device, std::shared_ptr<Channel> channel,
                                                    const CommunicatorOptions& options) {
  constexpr const char* call = "open_mpi_communicator";
  communication::expect_simulated(device, call);
  return std::make_unique<communication::SimulatedCommunicator>(
      device, communication::load_mpi_module().open(std::move(channel), options), call);
}

std::unique_ptr<Communicator> open_nccl_communicator(Device& device, std::shared_ptr<Channel> channel) {
  static const auto& module =
      static_cast<const communication::NcclModule&>(communication::load_module(communication::nccl_module));
  return module.open(device, std::move(channel));
}

}  // namespace stowage
