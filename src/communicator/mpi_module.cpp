#include "src/communicator/mpi_module.h"

#include <fmt/core.h>

#include <cstdlib>
#include <cstring>

#include "src/base/module_file.h"
#include "src/communicator/simulated_communicator.h"
#include "src/device/backend_module.h"

namespace stowage {
namespace communication {
namespace {

namespace fs = std::filesystem;

constexpr const char* file_name = "libstowage_mpi.so";
constexpr const char* entry_name = "stowage_mpi_module";

const char* advice(const std::string& error) {
  if (error.find("libmpi") != std::string::npos)
    return "install Open MPI 4.1 (Debian: libopenmpi3 and openmpi-bin)";
  return "build and install this version of Stowage anew, with STOWAGE_MPI=ON";
}

std::vector<fs::path> own_candidates() {
  return module_candidates(file_name, std::getenv("STOWAGE_MPI_MODULE"), program_path(),
                           library_path(reinterpret_cast<const void*>(&load_mpi_module)), STOWAGE_MODULE_DIR);
}

}  // namespace

const MpiModule& load_mpi_module(const std::vector<fs::path>& candidates) {
  const fs::path path = first_that_exists(candidates);
  if (path.empty())
    throw InvalidInput(
        fmt::format("there is no MPI module (looked for {}): install libopenmpi-dev and build Stowage with "
                    "STOWAGE_MPI=ON, or name "
                    "the file in STOWAGE_MPI_MODULE",
                    joined_paths(candidates)));
  const ModuleEntry found = load_entry(path, entry_name);
  if (!found.loaded)
    throw InvalidInput(fmt::format("the MPI module {} does not load ({}): {}", path.string(), found.error,
                                   advice(found.error)));
  if (found.address == nullptr)
    throw InvalidInput(fmt::format("{} is no MPI module of Stowage ({}): name another in STOWAGE_MPI_MODULE",
                                   path.string(), found.error));
  const MpiModule& module = *reinterpret_cast<const MpiModule* (*)()>(found.address)();
  if (module.abi != mpi_module_abi || std::strcmp(module.version, backend_module_version()) != 0)
    throw InvalidInput(
        fmt::format("the MPI module {} is of another build than this program (interface {}, '{}'): "
                    "build both together",
                    path.string(), mpi_module_abi, backend_module_version()));
  return module;
}

}  // namespace communication

std::unique_ptr<Communicator> open_mpi_communicator(Device& device, const CommunicatorOptions& options) {
  constexpr const char* call = "open_mpi_communicator";
  communication::expect_simulated(device, call);
  static const communication::MpiModule& module =
      communication::load_mpi_module(communication::own_candidates());
  return std::make_unique<communication::SimulatedCommunicator>(device, module.open(options), call);
}

}  // namespace stowage
