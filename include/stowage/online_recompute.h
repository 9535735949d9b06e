// OnlineRecompute: activations in one fixed range of memory, for programs that are not known ahead.
//
// A program runs op by op (define-by-run): its graph may depend on its data. Each tensor is written once, by
// one op. When no gap of the range is large enough for a new tensor, tensors are evicted: those of the
// address-contiguous window for which the sum of
//
//   (seconds of the op + seconds of what is evicted around it) / (bytes * staleness)
//
// is least. An evicted tensor that is read again is rebuilt by its op, after what that op reads has been;
// with ops that are replayable (same inputs, same bits) the program sees the same bits in any capacity that
// works. Kirisame et al., "Dynamic Tensor Rematerialization" (ICLR 2021): the heuristic, evicted
// neighbourhoods, early release. Zhang et al., "Coop: Memory is not a Commodity" (NeurIPS 2023): windows,
// because what is evicted here and there leaves gaps that serve nobody.
//
// Decides, and calls the program's ops; touches no byte of the range itself, needs no device and no clock:
// staleness counts ops. The same calls always lead to the same evictions. Not thread-safe. An op may run at
// once, or be enqueued on one in-order lane: bytes change hands in the order of the calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "stowage/bytes.h"
#include "stowage/error.h"

namespace stowage {

// Of one OnlineRecompute; never used again for another tensor.
enum class OnlineTensor : std::uint64_t {};

enum class Eviction : std::uint8_t {
  window,  // neighbours, as many as make one gap that is large enough
  single,  // the one least worth keeping, wherever it lies, until some gap is large enough
};

struct OnlineOptions {
  Bytes alignment = 256;  // of offsets and sizes; a power of two
  Eviction eviction = Eviction::window;
  // Told of every range that holds nothing any more: `Device::discard` on the lane of the ops, or a poison.
  // Must not throw, nor call the OnlineRecompute.
  std::function<void(std::byte* address, Bytes bytes)> dropped{};
};

// Addresses in the order of OnlineOp::reads and ::writes.
struct OnlineOperands {
  std::span<const std::byte* const> reads;
  std::span<std::byte* const> writes;
};

// Writes all bytes of all that it writes, from what it reads and nothing that changes: it may be run again.
// An op that writes nothing is run once, for what it does elsewhere. Must not call the OnlineRecompute.
struct OnlineOp {
  std::string name;
  std::function<void(const OnlineOperands&)> work;
  std::vector<OnlineTensor> reads;
  std::vector<OnlineTensor> writes;  // declared, not written yet
  double seconds = 0;                // its cost, in any unit that all ops share; >= 0
};

struct OnlineStatistics {
  Bytes live_bytes = 0;       // in tensors that are in the range, rounded up to the alignment
  Bytes peak_live_bytes = 0;  // the most ever
  Bytes highest_byte = 0;     // one past the highest ever used
  std::uint64_t ops = 0;      // run by the program
  std::uint64_t evictions = 0;
  Bytes evicted_bytes = 0;
  std::uint64_t rebuilds = 0;  // ops run again
  Bytes rebuilt_bytes = 0;     // what these wrote
  double op_seconds = 0;       // of the program's own
  double rebuilt_seconds = 0;  // of those run again
};

class OnlineRecompute {
 public:
  // Owns nothing of [memory, memory + capacity), which must outlive it. Throws InvalidInput unless `memory`
  // is aligned.
  OnlineRecompute(std::byte* memory, Bytes capacity, const OnlineOptions& options = {});
  ~OnlineRecompute();
  OnlineRecompute(const OnlineRecompute&) = delete;
  OnlineRecompute& operator=(const OnlineRecompute&) = delete;

  // A tensor of `bytes` > 0 that some later op writes. Takes no memory yet.
  OnlineTensor declare(std::string name, Bytes bytes);

  // Runs the op, after what it reads has been rebuilt where it was evicted. Throws
  //   InvalidInput  a read that no op has written, a write that one has, the same write twice, a tensor that
  //                 was released or is another OnlineRecompute's
  //   OutOfMemory   what must be there at once does not fit; `what()` says who holds how much
  // and lets through what an op throws. The op has then not been run, or counts as if it had not; what was
  // there before may have been evicted, and nothing else is lost.
  void run(OnlineOp op);

  // Holds a tensor at its address while it lives. Must not outlive the OnlineRecompute.
  class Pin {
   public:
    Pin(Pin&& other) noexcept
        : owner_(std::exchange(other.owner_, nullptr)), tensor_(other.tensor_), data_(other.data_) {}
    Pin& operator=(Pin&& other) noexcept {
      std::swap(owner_, other.owner_);
      std::swap(tensor_, other.tensor_);
      std::swap(data_, other.data_);
      return *this;
    }
    ~Pin();
    const std::byte* data() const { return data_; }

   private:
    friend class OnlineRecompute;
    Pin(OnlineRecompute& owner, OnlineTensor tensor, const std::byte* data)
        : owner_(&owner), tensor_(tensor), data_(data) {}
    OnlineRecompute* owner_;
    OnlineTensor tensor_;
    const std::byte* data_;
  };
  // Rebuilds it first where it was evicted. Throws as `run` does.
  [[nodiscard]] Pin pin(OnlineTensor tensor);

  // Never evicted from now on, and how it was made is forgotten: for what goes on from one round of a program
  // to the next, the past of which would otherwise be remembered for ever. Throws as `pin` does.
  void keep(OnlineTensor tensor);

  // The program will not name it again. Its bytes are free at once, but for those of a kept tensor that
  // something evictable is still rebuilt from. Throws InvalidInput while it is pinned.
  void release(OnlineTensor tensor);

  // Whether it is in the range now.
  bool is_live(OnlineTensor tensor) const;
  const OnlineStatistics& statistics() const;
  // Tensors and ops that are remembered, released ones among them.
  std::size_t remembered() const;

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace stowage
