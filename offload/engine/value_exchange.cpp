#include "offload/engine/value_exchange.h"

#include <algorithm>
#include <cstring>
#include <exception>

#include "offload/engine/staging.h"

namespace stowage {

ValueExchange::ValueExchange(Device& device, Communicator& communicator)
    : device_(device),
      communicator_(communicator),
      // NCCL cannot reach pageable memory.
      memory_(staging_memory(device, most_bytes, device.info().backend != "cuda")),
      lane_(device, LaneRole::compute) {}

void ValueExchange::send(int owner, Bytes bytes, const ReadPiece& read, std::byte* into) {
  for (Bytes done = 0; done < bytes; done += most_bytes) {
    const std::span<std::byte> piece(memory_.data(), std::min(most_bytes, bytes - done));
    if (owner == communicator_.rank()) {
      try {
        read(done, piece);
      } catch (const std::exception& error) {
        communicator_.abort(error.what());
        throw;
      }
    }
    broadcast(owner, piece.size());
    if (into != nullptr) std::memcpy(into + done, piece.data(), piece.size());
  }
}

void ValueExchange::tell(const ValueRequest& request) {
  std::memcpy(memory_.data(), &request, sizeof request);
  broadcast(0, sizeof request);
}

ValueRequest ValueExchange::told() {
  ValueRequest request;
  broadcast(0, sizeof request);
  std::memcpy(&request, memory_.data(), sizeof request);
  return request;
}

void ValueExchange::broadcast(int root, Bytes bytes) {
  communicator_.broadcast(lane_.id(), root, memory_.data(), bytes);
  try {
    device_.synchronise_lane(lane_.id());
  } catch (const DeviceError&) {
    communicator_.check();  // throws an error that names the failed rank
    throw;
  }
  communicator_.check();  // over NCCL a lane ends normally although the collective was aborted
}

}  // namespace stowage
