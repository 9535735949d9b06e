// Memory that an engine's collectives use in every step, as its communicator knows it.
#pragma once

#include <exception>

#include "stowage/communicator.h"

namespace stowage {

// From here until this dies, which is before the memory is released and once the work on it is done.
class RegisteredMemory {
 public:
  // `communicator` may be null, and there may be no bytes: then nothing is registered. Throws
  // CommunicatorError.
  RegisteredMemory(Communicator* communicator, void* address, Bytes bytes)
      : communicator_(bytes == 0 ? nullptr : communicator), address_(address) {
    if (communicator_ != nullptr) communicator_->register_memory(address, bytes);
  }
  RegisteredMemory(const RegisteredMemory&) = delete;
  RegisteredMemory& operator=(const RegisteredMemory&) = delete;
  // A failure here fails the communicator, and its next call tells.
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
