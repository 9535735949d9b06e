// Memory that an engine's collectives use in every step, as its communicator knows it.
#pragma once

#include <exception>

#include "stowage/communicator.h"

namespace stowage {

// Registers the memory from construction to destruction. Destroy it when the work on the memory is done, and
// before the memory is released.
class RegisteredMemory {
 public:
  // Registers nothing if `communicator` is null or `bytes` is 0. Throws CommunicatorError.
  RegisteredMemory(Communicator* communicator, void* address, Bytes bytes)
      : communicator_(bytes == 0 ? nullptr : communicator), address_(address) {
    if (communicator_ != nullptr) communicator_->register_memory(address, bytes);
  }
  RegisteredMemory(const RegisteredMemory&) = delete;
  RegisteredMemory& operator=(const RegisteredMemory&) = delete;
  // Swallows a failure: it fails the communicator, whose next call throws.
  ~RegisteredMemory() {
    if (communicator_ == nullptr) return;
    try {
      communicator_->forget_memory(address_);
    } catch (const std::exception&) {
      return;
    }
  }

 private:
  Communicator* const communicator_;
  void* const address_;
};

}  // namespace stowage
