// Exports of the MPI module.
#include "src/communicator/communicator_module.h"
#include "src/communicator/mpi/mpi_transport.h"
#include "src/device/backend_module.h"

namespace {

using namespace stowage::communication;

std::unique_ptr<Transport> open(std::shared_ptr<stowage::Channel> channel,
                                const stowage::CommunicatorOptions& options) {
  return std::make_unique<MpiTransport>(std::move(channel), options.peer);
}
RankOfWorld rank() { return MpiSession::get().rank(); }
std::string share(const std::string& text, const std::function<void()>& look) {
  return MpiSession::get().share(text, look);
}
void lose() { MpiSession::get().lose(); }
bool end() { return MpiSession::get().end(); }

}  // namespace

extern "C" const stowage::communication::ModuleHead* stowage_mpi_module() {
  static const stowage::communication::MpiModule module{
      {stowage::communication::mpi_module.abi, stowage::backend_module_version()},
      rank,
      share,
      lose,
      end,
      open};
  return &module;
}
