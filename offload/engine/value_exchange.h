// ValueExchange passes parts of values between the processes that train one model, outside of steps, through
// a little host memory. All processes make the same calls in the same order.
#pragma once

#include <functional>
#include <span>

#include "stowage/communicator.h"
#include "stowage/device.h"
#include "stowage/graph.h"

namespace stowage {

// The part of a value that rank 0 reads next; the other ranks then send it.
struct ValueRequest {
  TensorId tensor = no_id;
  Bytes offset = 0;
  Bytes bytes = 0;
};

class ValueExchange {
 public:
  static constexpr Bytes most_bytes = 1_MiB;  // most bytes sent at once, and allocated on the host

  // Both arguments must outlive the object. The communicator's work on other lanes must be done before each
  // call. Throws OutOfMemory.
  ValueExchange(Device& device, Communicator& communicator);

  // Sends `bytes` bytes from rank `owner`, where `read` makes them piece by piece, to every rank whose `into`
  // is not null. An exception of `read` fails the communicator and is passed on. Throws CommunicatorError.
  using ReadPiece = std::function<void(Bytes offset, std::span<std::byte> piece)>;
  void send(int owner, Bytes bytes, const ReadPiece& read, std::byte* into);

  // Sends the request from rank 0 to the others.
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
