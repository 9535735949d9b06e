// Communicator: how the devices that train one model exchange bytes. A device with its communicator is a
// *rank*; ranks count from 0 to size() - 1. A communicator moves bytes and computes nothing.
//
// Calls. all_gather, exchange and broadcast are work on a compute or peer lane of the rank's own device, in
// the order of that lane; events order them with other lanes. Every rank makes the same calls, with the same
// bytes and root, in the same order. A call may block until all ranks have made it, so each rank is driven by
// a thread of its own; the work is done behind it. A rank's calls come one at a time, on one lane at a time:
// another lane may be used once the work on the previous one is done. `abort` and `check` may come from any
// thread, at any time.
//
// Memory is device memory or pinned host memory of the rank's own device, and stays allocated until the work
// is done. Undefined bytes (padding between tensors) may be sent; they are received as such.
//
// Errors. CommunicatorError names the call, the rank that failed first and why. It is thrown by the call
// itself, or the work fails as Device says: then the next synchronise of the lane throws DeviceError with
// that text, and `check` throws CommunicatorError. A failure on one rank (a missing wait, a failed lane, a
// device call, a mismatch of the ranks' calls) fails the communicator on all ranks, as `abort` does: each
// pending and later call fails promptly, on every rank, and nothing hangs. That is final.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stowage/bytes.h"
#include "stowage/channel.h"
#include "stowage/device.h"
#include "stowage/machine.h"

namespace stowage {

class Communicator {
 public:
  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  // A rank ends its communicator once all its work is done; unfinished work fails all ranks. Later calls of
  // other ranks fail, so ranks meet at a `barrier` before they end.
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // A *whole* of whole_bytes, no more than size() shares, is cut into shares of share_bytes, in rank order;
  // the last may be cut short or empty. A rank's own share is at `share`, apart from `whole` or at its place
  // there; all shares arrive in `whole`.
  virtual void all_gather(LaneId lane, const void* share, void* whole, Bytes share_bytes,
                          Bytes whole_bytes) = 0;
  // Every rank has a whole, cut in the same way, and sends share p of it to rank p. The share from rank q
  // (its own, too) arrives at q * share_bytes in `shares`; bytes there that no share has stay as they are.
  // `whole` and `shares` do not overlap.
  virtual void exchange(LaneId lane, const void* whole, void* shares, Bytes share_bytes,
                        Bytes whole_bytes) = 0;
  // Same, but no share is cut short, and this rank's share lies at its place in `whole`.
  void all_gather(LaneId lane, void* whole, Bytes share_bytes) {
    const auto ranks = static_cast<Bytes>(size());
    const std::byte* const own = static_cast<std::byte*>(whole) + static_cast<Bytes>(rank()) * share_bytes;
    all_gather(lane, own, whole, share_bytes, ranks * share_bytes);
  }
  void exchange(LaneId lane, const void* whole, void* shares, Bytes share_bytes) {
    exchange(lane, whole, shares, share_bytes, static_cast<Bytes>(size()) * share_bytes);
  }
  // Sends rank `root`'s bytes to all others.
  virtual void broadcast(LaneId lane, int root, void* data, Bytes bytes) = 0;
  // Blocks the calling thread until all ranks have come, and all work that they enqueued before is done.
  virtual void barrier() = 0;

  // Fails the communicator on all ranks, which learn of this rank and its reason. The first failure counts.
  virtual void abort(std::string_view reason) = 0;
  // Throws CommunicatorError if the communicator has failed, as far as this rank knows.
  virtual void check() = 0;

  // Tells the library that collectives will use this device memory again and again; some work faster for
  // knowing. The memory stays allocated until it is forgotten; the communicator's end forgets all. An engine
  // registers its arena, the only memory that its collectives touch, and forgets it before the arena is
  // released.
  virtual void register_memory(void* address, Bytes bytes) {
    static_cast<void>(address);
    static_cast<void>(bytes);
  }
  // Forgets memory registered at this address; no collective on it is under way. Does nothing once the
  // communicator has failed.
  virtual void forget_memory(void* address) { static_cast<void>(address); }
};

struct CommunicatorOptions {
  // The link into each simulated device. A collective lasts as long as one transfer of all that a rank
  // receives from others (of all the bytes of a broadcast). Virtual time: it begins at the latest of the
  // lanes' clocks, and all lanes end together. Otherwise the link counts only in one process and if it is
  // throttled; else bytes take their own time.
  Link peer = Link::unthrottled();
};

// Makes communicators for devices of this process, ranks in the order given; the devices outlive them. They
// are simulated, no two the same (else InvalidInput), all of one executor. A call blocks until all ranks have
// made it, so every device checks its memory for as long as the collective lasts on any rank, and undefined
// bytes arrive as such. A mismatch throws at the call.
std::vector<std::unique_ptr<Communicator>> make_local_communicators(std::span<Device* const> devices,
                                                                    const CommunicatorOptions& options = {});

// Makes a simulated device of this process a rank of its MPI job (mpirun); all ranks open theirs together,
// else InvalidInput. `channel` is the job's (open_channel), and is shared. The MPI library (Open MPI 4.1)
// comes with a module that is loaded here: looked for in the file that the environment variable
// STOWAGE_MPI_MODULE names, then as that of CUDA (cuda_device.h); InvalidInput says what to install. MPI is
// begun here and ended with the process, unless the program has begun it, by MPI_Init_thread with
// MPI_THREAD_SERIALIZED or more. Below MPI_THREAD_MULTIPLE the program makes no calls of MPI while work is
// under way.
// - Bytes that arrive count as defined, even if they were undefined at their origin.
// - Calls return at once (in virtual time when the work is done). The work first exchanges what the ranks
//   call, so it finds a mismatch.
// - A rank whose process dies is named to the others at once, if mpirun lets them live (--enable-recovery).
//   If its machine is gone, that takes some 4 s.
// - Then MPI is not ended in this process, and no communicator can be opened again.
std::unique_ptr<Communicator> open_mpi_communicator(Device& device, std::shared_ptr<Channel> channel,
                                                    const CommunicatorOptions& options = {});

// Makes a CUDA device a rank of NCCL; all ranks of the channel open theirs together, each in a thread or
// process of its own, else InvalidInput. The communicator shares the channel. NCCL (2.19 or newer) comes with
// a module that is loaded here: looked for in the file that the environment variable STOWAGE_NCCL_MODULE
// names, then as that of CUDA; InvalidInput says what to install.
// - Calls return once NCCL has taken the work. Calls that differ between ranks are not detected.
// - A communicator that fails ends its work on the card without an error there: `check` alone says so. A
//   thread asks NCCL for errors of its own, so the work also ends within a second of such an error, while no
//   rank asks.
// - Ranks learn of failures and deaths over the channel, as with MPI, and each aborts its part. Work that
//   needs a rank which has ended in order waits: barriers before the end are not optional here.
// Tested over a fake of NCCL and of CUDA, not on cards.
std::unique_ptr<Communicator> open_nccl_communicator(Device& device, std::shared_ptr<Channel> channel);

}  // namespace stowage
