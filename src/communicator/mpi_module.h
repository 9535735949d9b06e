// The MPI module: a shared library of its own, loaded when a communicator over MPI is first opened, so that
// programs start where MPI is not installed. It exports `extern "C" const MpiModule* stowage_mpi_module()`
// and is built together with the program that loads it (same compiler, same headers). A module of another
// build is refused.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "src/communicator/transport.h"
#include "stowage/communicator.h"

namespace stowage::communication {

inline constexpr unsigned mpi_module_abi = 1001;  // no other module's number

struct MpiModule {
  // Read first: nothing behind them is touched when they differ from the program's.
  unsigned abi = 0;
  const char* version = "";

  // All ranks of MPI_COMM_WORLD together.
  std::unique_ptr<Transport> (*open)(const CommunicatorOptions& options) = nullptr;
};

// The first candidate that exists. Throws InvalidInput: which file, what the loader missed, what to do.
const MpiModule& load_mpi_module(const std::vector<std::filesystem::path>& candidates);

}  // namespace stowage::communication
