// Modules of communicators: shared libraries of their own, loaded when a communicator of their kind is first
// opened, so that programs start where MPI is not installed. A module is built together with the program that
// loads it (same compiler, same headers): C++ types and exceptions cross the boundary. A module of another
// build is refused.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/communicator/transport.h"
#include "stowage/communicator.h"

namespace stowage::communication {

// The beginning of every module: read before the members behind it.
struct ModuleHead {
  unsigned abi = 0;
  const char* version = "";
};

// Says how a kind of module is found, and what its errors tell the user.
struct ModuleKind {
  const char* name;         // "the MPI module"
  const char* file;         // "libstowage_mpi.so"
  const char* entry;        // name of the exported function, which returns the ModuleHead
  const char* environment;  // environment variable that may name another file
  const char* needs;        // the library that it needs, as the loader names it
  const char* install;      // how to get that library
  const char* build;        // advice if there is no module
  unsigned abi;
};

struct RankOfWorld {
  int rank = 0;
  int size = 1;
};
struct MpiModule : ModuleHead {
  // Begins MPI and returns this process's rank in MPI_COMM_WORLD.
  RankOfWorld (*rank)() = nullptr;
  // Called by all ranks together. Returns rank 0's text, of 4,000 bytes at most. Calls `look` while it waits;
  // an exception of `look` ends the wait.
  std::string (*share)(const std::string& text, const std::function<void()>& look) = nullptr;
  // Gives MPI up because a rank has died: MPI is neither called again nor ended.
  void (*lose)() = nullptr;
  // Ends MPI, which waits until all ranks do so. False: MPI was given up, and is not ended.
  bool (*end)() = nullptr;
  // Called by all ranks together.
  std::unique_ptr<Transport> (*open)(std::shared_ptr<Channel> channel,
                                     const CommunicatorOptions& options) = nullptr;
};
inline constexpr ModuleKind mpi_module{"the MPI module",
                                       "libstowage_mpi.so",
                                       "stowage_mpi_module",
                                       "STOWAGE_MPI_MODULE",
                                       "libmpi",
                                       "install Open MPI 4.1 (Debian: libopenmpi3 and openmpi-bin)",
                                       "install libopenmpi-dev and build Stowage with STOWAGE_MPI=ON",
                                       1003};

struct NcclModule : ModuleHead {
  std::unique_ptr<Communicator> (*open)(Device& device, std::shared_ptr<Channel> channel) = nullptr;
};
inline constexpr ModuleKind nccl_module{
    "the NCCL module",
    "libstowage_nccl.so",
    "stowage_nccl_module",
    "STOWAGE_NCCL_MODULE",
    "libnccl",
    "install NCCL 2.19 or newer for CUDA 13, or name its folder in LD_LIBRARY_PATH",
    "install NCCL and the CUDA toolkit, and build Stowage with STOWAGE_CUDA=ON",
    2002};

// Loads the first candidate that exists. Throws InvalidInput that says which file, what the loader missed and
// what to do.
const ModuleHead& load_module(const ModuleKind& kind, const std::vector<std::filesystem::path>& candidates);
// Loads the module from the usual places.
const ModuleHead& load_module(const ModuleKind& kind);
const MpiModule& load_mpi_module();

}  // namespace stowage::communication
