// ValueExchange: how the processes that train one model hand each other parts of values, outside of steps,
// through a little host memory. All processes make the same calls in the same order.
#pragma once

#include <functional>
#include <span>

#include "stowage/communicator.h"
#include "stowage/device.h"
#include "stowage/graph.h"

namespace stowage {

// The part of a value that rank 0 reads next, which the other ranks then send it.
struct ValueRequest {
  TensorId tensor = no_id;
  Bytes offset = 0;
  Bytes bytes = 0;
};

class ValueExchange {
 public:
  static constexpr Bytes most_bytes = 1_MiB;  // that travel at once, and that it takes of the host

  // Both outlive it. Work of the communicator on other lanes must be done before each call. Throws
  // OutOfMemory.
  ValueExchange(Device& device, Communicator& communicator);

  // Rank `owner` has so many bytes, and `read` makes them there piece by piece; each rank gets them at
  // `into`, if that is not null. What `read` throws fails the communicator. Throws that, and
  // CommunicatorError.
  using ReadPiece = std::function<void(Bytes offset, std::span<std::byte> piece)>;
  void send(int owner, Bytes bytes, const ReadPiece& read, std::byte* into);

  // From rank 0 to the others.
  void tell(const ValueRequest& request);
  ValueRequest told();

 private:
  void broadcast(int root, Bytes bytes);

  Device& device_;
  Communicator& communicator_;
  DeviceMemory memory_;
  Lane lane_;
};

}  // namespace stowage
