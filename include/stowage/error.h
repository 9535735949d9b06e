// Typed errors. Every message ends with what to do next.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace stowage {

// Base of every exception that Stowage throws on purpose.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The caller's input is wrong: a flag, a file, a shape. Programs exit with code 2.
class InvalidInput : public Error {
 public:
  using Error::Error;
};

// The caller asked for an end before there was a result, as by PlanOptions::stop. Nothing has changed: the
// same work can be started again.
class Cancelled : public Error {
 public:
  using Error::Error;
};

// Memory of some kind ran out. `what()` holds the account of who holds what.
class OutOfMemory : public Error {
 public:
  OutOfMemory(const std::string& message, std::uint64_t requested_bytes, std::uint64_t free_bytes)
      : Error(message), requested_bytes_(requested_bytes), free_bytes_(free_bytes) {}
  std::uint64_t requested_bytes() const { return requested_bytes_; }
  std::uint64_t free_bytes() const { return free_bytes_; }

 private:
  std::uint64_t requested_bytes_;
  std::uint64_t free_bytes_;
};

// A device call failed. `call()` is the Device function; `work()` the name given to the failed launch
// or copy ("" where the call itself failed). The engine adds op, bytes and lane.
class DeviceError : public Error {
 public:
  DeviceError(const std::string& message, std::string call, std::string work = {})
      : Error(message), call_(std::move(call)), work_(std::move(work)) {}
  const std::string& call() const { return call_; }
  const std::string& work() const { return work_; }

 private:
  std::string call_;
  std::string work_;
};

// A communicator has failed (communicator.h). `call()` is the Communicator function that reports it,
// `failed_rank()` the rank that failed first.
class CommunicatorError : public Error {
 public:
  CommunicatorError(const std::string& message, std::string call, int failed_rank)
      : Error(message), call_(std::move(call)), failed_rank_(failed_rank) {}
  const std::string& call() const { return call_; }
  int failed_rank() const { return failed_rank_; }

 private:
  std::string call_;
  int failed_rank_;
};

// The simulated device saw two unordered accesses, an access to dead or foreign bytes, or one past the end of
// an allocation: a defect in a plan or in a launch's declared accesses.
class AccessViolation : public DeviceError {
 public:
  using DeviceError::DeviceError;
};

}  // namespace stowage
