#include <fmt/format.h>

#include <cstring>
#include <exception>
#include <new>
#include <thread>
#include <utility>

#include "src/base/laps.h"
#include "src/base/mutex.h"
#include "src/checkpoint/checkpoint_tensors.h"
#include "stowage/checkpoint.h"

namespace stowage {
namespace checkpoint {

// Host buffer, faulted in on construction so that a later write cannot run out of memory.
class HostCopy {
 public:
  explicit HostCopy(Bytes bytes) : bytes_(bytes) {
    if (bytes == 0) return;
    data_.reset(new (std::align_val_t{checkpoint_alignment}, std::nothrow) std::byte[bytes]);
    if (data_ == nullptr)
      throw OutOfMemory(
          fmt::format("the host has no {} for a copy of the state to be saved: save without one, "
                      "blocking, or train a smaller model",
                      format_bytes(bytes)),
          bytes, 0);
    std::memset(data_.get(), 0, bytes);
  }
  Bytes bytes() const { return bytes_; }
  std::span<std::byte> part(Bytes offset, Bytes bytes) { return {data_.get() + offset, bytes}; }

 private:
  struct Free {
    void operator()(std::byte* data) const {
      ::operator delete[](data, std::align_val_t{checkpoint_alignment});
    }
  };
  Bytes bytes_ = 0;
  std::unique_ptr<std::byte[], Free> data_;
};

}  // namespace checkpoint

class CheckpointSaver::Implementation {
 public:
  Implementation(CheckpointFolder& folder, const Graph& graph, Saving saving)
      : folder_(folder),
        saving_(saving),
        ids_(lasting_tensors(graph)),
        tensors_(checkpoint_tensors(graph)),
        copy_(saving == Saving::background ? checkpoint_bytes(tensors_) : 0) {
    if (saving == Saving::background) writer_ = std::thread([this] { work(); });
  }
  ~Implementation() {
    if (!writer_.joinable()) return;
    {
      const MutexLock lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    writer_.join();
  }
  Bytes copy_bytes() const { return copy_.bytes(); }

  void save(CheckpointState state, const StateAccess& access, CheckpointRank rank) {
    state.tensors = tensors_;
    if (saving_ == Saving::blocking) return save_now(state, access, rank);
    finish();  // this thread owns the copy until it sets `waiting_`
    if (!record_failure(state.step, [&] { folder_.require_room(state); })) return;
    for (std::size_t i = 0; i < ids_.size(); ++i)
      access.read(ids_[i], 0, copy_.part(tensors_[i].offset, tensors_[i].bytes));
    {
      const MutexLock lock(mutex_);
      waiting_ = std::move(state);
      rank_ = rank;
    }
    changed_.notify_all();
  }

  void finish() {
    const MutexLock lock(mutex_);
    while (waiting_) changed_.wait(mutex_);
  }

  std::vector<std::string> take_failures() {
    const MutexLock lock(mutex_);
    return std::exchange(failures_, {});
  }

  std::optional<FirstWrite> first_write() {
    const MutexLock lock(mutex_);
    return first_;
  }

 private:
  // Keeps failures of the disk for take_failures, and rethrows failures of `access`.
  void save_now(const CheckpointState& state, const StateAccess& access, CheckpointRank rank) {
    std::exception_ptr of_access;
    write(state, rank, [&](std::size_t tensor, Bytes offset, std::span<std::byte> into) {
      try {
        access.read(ids_[tensor], offset, into);
      } catch (...) {
        of_access = std::current_exception();
        throw;
      }
    });
    if (!of_access) return;
    take_failures();
    std::rethrow_exception(of_access);
  }

  void write(const CheckpointState& state, CheckpointRank rank, const CheckpointFolder::ReadValue& read) {
    Laps laps;
    if (!record_failure(state.step, [&] { folder_.write(state, read, rank); })) return;
    const MutexLock lock(mutex_);
    if (!first_) first_ = FirstWrite{state.step, laps.lap()};
  }

  // Returns whether `action` came to its end; keeps its error for take_failures.
  template <class Action>
  bool record_failure(std::uint64_t step, Action action) {
    try {
      action();
      return true;
    } catch (const std::exception& error) {
      const MutexLock lock(mutex_);
      failures_.push_back(fmt::format("checkpoint of step {}: {}", step, error.what()));
      return false;
    }
  }

  // The writer's thread.
  void work() {
    while (true) {
      CheckpointState state;
      CheckpointRank rank = CheckpointRank::newest;
      {
        const MutexLock lock(mutex_);
        while (!waiting_ && !ending_) changed_.wait(mutex_);
        if (!waiting_) return;
        state = *waiting_;
        rank = rank_;
      }
      write(state, rank, [&](std::size_t tensor, Bytes offset, std::span<std::byte> into) {
        const auto from = copy_.part(state.tensors[tensor].offset + offset, into.size());
        std::memcpy(into.data(), from.data(), from.size());
      });
      {
        const MutexLock lock(mutex_);
        waiting_.reset();
      }
      changed_.notify_all();
    }
  }

  CheckpointFolder& folder_;
  const Saving saving_;
  const std::vector<TensorId> ids_;
  const std::vector<CheckpointTensor> tensors_;
  checkpoint::HostCopy copy_;
  Mutex mutex_;
  CondVar changed_;
  // The state to write, until it is written.
  std::optional<CheckpointState> waiting_ STOWAGE_GUARDED_BY(mutex_);
  CheckpointRank rank_ STOWAGE_GUARDED_BY(mutex_) = CheckpointRank::newest;  // rank of `waiting_`
  bool ending_ STOWAGE_GUARDED_BY(mutex_) = false;
  std::vector<std::string> failures_ STOWAGE_GUARDED_BY(mutex_);
  std::optional<FirstWrite> first_ STOWAGE_GUARDED_BY(mutex_);
  std::thread writer_;  // the last member: it uses the others
};

CheckpointSaver::CheckpointSaver(CheckpointFolder& folder, const Graph& graph, Saving saving)
    : implementation_(std::make_unique<Implementation>(folder, graph, saving)) {}

CheckpointSaver::~CheckpointSaver() = default;

Bytes CheckpointSaver::copy_bytes() const { return implementation_->copy_bytes(); }

void CheckpointSaver::save(CheckpointState state, const StateAccess& access, CheckpointRank rank) {
  implementation_->save(std::move(state), access, rank);
}

void CheckpointSaver::finish() { implementation_->finish(); }

std::vector<std::string> CheckpointSaver::take_failures() { return implementation_->take_failures(); }

std::optional<CheckpointSaver::FirstWrite> CheckpointSaver::first_write() const {
  return implementation_->first_write();
}

}  // namespace stowage
