// Checkpoints: all that a training run needs to go on to the same bits, in a folder that is either complete
// or absent.
//
//   DIR/step-000000000120/state.json    what is said below, and a checksum over itself
//                         tensors.bin   the values' raw bytes as the machine holds them, tensor after tensor,
//                                       each from a multiple of 64 bytes on, zeros between them
//   DIR/best                            a link to the one with the least score, where such is kept
// Values are stored by tensor name, without anything of a plan: a run goes on under any budget, bucket size,
// order of micro-batches, number of threads and policy. Checksums are XXH3-128 (https://xxhash.com), which
// finds damage, not forgery. Names and texts are UTF-8.
//
// A checkpoint is written under `.writing-<process>`, its files and the folder are flushed to the disk, and
// then it is renamed. A checkpoint that is removed is first renamed to `.removing-<process>`. A folder with
// the name `step-…` is therefore complete, whenever the process or the machine stopped.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "stowage/bytes.h"
#include "stowage/error.h"
#include "stowage/graph.h"
#include "stowage/loss_scale.h"

namespace stowage {

struct CheckpointTensor {
  std::string name;
  TensorKind kind = TensorKind::parameter;  // or optimizer_state
  DataType type = DataType::f32;
  std::vector<std::int64_t> shape;
  Bytes offset = 0;      // position in tensors.bin, a multiple of 64
  Bytes bytes = 0;       // size of the value
  std::string checksum;  // covers the value and the zeros behind it; 32 hexadecimal digits
  friend bool operator==(const CheckpointTensor&, const CheckpointTensor&) = default;
};

// The least score of a run so far, for a run that ends when its scores fall no more.
struct LeastScore {
  double score = 0;
  std::uint64_t step = 0;   // step that was measured
  std::uint64_t since = 0;  // number of scores measured since, none of them less
  friend bool operator==(const LeastScore&, const LeastScore&) = default;
};

struct CheckpointState {
  std::uint64_t step = 0;  // number of completed steps; below 2^63
  std::uint64_t seed = 0;  // together with `step`, the key of all random draws
  // The position in the data from which the run goes on, in the reader's own words, e.g. epoch and sample.
  std::map<std::string, std::int64_t> data_position;
  // Everything that the run's arithmetic depends on (model, optimizer, schedule, data): name to value.
  std::map<std::string, std::string> configuration;
  std::vector<CheckpointTensor> tensors;
  // A measure of this state, such as an evaluation loss: less is better, and never NaN.
  std::optional<double> score{};
  std::optional<LossScale> loss_scale{};    // loss scale of the next step, in fp16
  std::optional<LeastScore> least_score{};  // in a run that may end early
  friend bool operator==(const CheckpointState&, const CheckpointState&) = default;
};

// Returns the count and checksum of `bytes`, for a configuration.
std::string fingerprint(std::string_view bytes);

// Returns parameters and optimizer state, in the graph's order.
std::vector<TensorId> lasting_tensors(const Graph& graph);
// Returns these tensors as a checkpoint has them, without checksums. Throws InvalidInput if they are too
// large.
std::vector<CheckpointTensor> checkpoint_tensors(const Graph& graph);
Bytes checkpoint_bytes(const std::vector<CheckpointTensor>& tensors);  // size of tensors.bin
// Returns the bytes that the files of this checkpoint take on a disk.
Bytes checkpoint_disk_bytes(CheckpointState state);

// Access to a graph's state, wherever it lives: the calls of Engine of the same names.
struct StateAccess {
  using FillPiece = std::function<void(Bytes offset, std::span<std::byte> piece)>;
  std::function<void(TensorId, const FillPiece&)> fill;
  std::function<void(TensorId, Bytes offset, std::span<std::byte>)> read;
};

// `engine` must outlive it.
template <class EngineType>
StateAccess state_access(EngineType& engine) {
  return {[&engine](TensorId id, const StateAccess::FillPiece& piece) { engine.fill(id, piece); },
          [&engine](TensorId id, Bytes offset, std::span<std::byte> into) { engine.read(id, offset, into); }};
}

// A checkpoint that was found to be whole. Copyable; keeps no file open and no value in memory.
class Checkpoint {
 public:
  // Reads every byte, in pieces. Throws InvalidInput that names the file and the field or tensor that is
  // missing, damaged, of another format or version, or contradictory.
  explicit Checkpoint(std::string folder);

  const std::string& folder() const { return folder_; }
  const CheckpointState& state() const { return state_; }

  // Throw InvalidInput that names the first field that differs, and both values; for a configuration also the
  // names of the other fields that differ. A field that one side lacks has its value in `absent`, if that has
  // it.
  void require_configuration(const std::map<std::string, std::string>& configuration,
                             const std::map<std::string, std::string>& absent = {}) const;
  void require_graph(const Graph& graph) const;

  // Writes every value into its place. Requires a graph that `require_graph` accepts. Checks the bytes once
  // more as they pass: throws InvalidInput if the files have changed meanwhile; the values are then unknown.
  void load(const Graph& graph, const StateAccess& access) const;

 private:
  std::string folder_;
  CheckpointState state_;
};

// Reads values of a checkpoint from its file, as many bytes at a time as are asked for, and holds none. The
// file stays open, so that values can be read even if the checkpoint is removed meanwhile.
class CheckpointValues {
 public:
  // Requires a graph that `checkpoint.require_graph` accepts. Throws InvalidInput if the file has gone or has
  // another size.
  CheckpointValues(const Checkpoint& checkpoint, const Graph& graph);
  ~CheckpointValues();
  CheckpointValues(const CheckpointValues&) = delete;
  CheckpointValues& operator=(const CheckpointValues&) = delete;

  // The calls of Engine of the same names, for parameters and optimizer state. Throw InvalidInput for other
  // tensors and for bytes beyond a value; checksums were compared when the checkpoint was opened.
  std::vector<std::byte> read(TensorId tensor) const;
  void read(TensorId tensor, Bytes offset, std::span<std::byte> into) const;

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

// Lists the checkpoints named `step-…` in `folder`, newest (the highest step) first, without opening them: a
// listed checkpoint may be damaged. Returns an empty list if the folder does not exist. Throws InvalidInput
// if it cannot be read.
struct CheckpointName {
  std::string path;
  std::uint64_t step = 0;
};
std::vector<CheckpointName> list_checkpoints(const std::string& folder);

// Returns the checkpoint that the link `best` of `folder` leads to, with its score, without a look at its
// tensors; nullopt if there is none that can be read.
struct BestCheckpoint {
  std::string path;  // folder/step-…
  std::uint64_t step = 0;
  double score = 0;
};
std::optional<BestCheckpoint> find_best_checkpoint(const std::string& folder);

// The newest checkpoint is damaged. `what()` says why and names the newest good one.
class DamagedCheckpoint : public InvalidInput {
 public:
  DamagedCheckpoint(const std::string& message, std::string good)
      : InvalidInput(message), good_(std::move(good)) {}
  // Path of the newest good checkpoint; empty: there is none.
  const std::string& good() const { return good_; }

 private:
  std::string good_;
};

// Opens the newest checkpoint of `folder`; nullopt if there is none. Throws DamagedCheckpoint if it is
// damaged: an older one is never taken unasked.
std::optional<Checkpoint> open_newest_checkpoint(const std::string& folder);

// Why a checkpoint is kept.
enum class CheckpointRank : std::uint8_t {
  newest,  // kept as long as it is one of the newest
  best,    // kept until another checkpoint is the best
};

// Returns the bytes that this user may still write on the disk of `folder`; nullopt if the system does not
// tell.
std::optional<Bytes> free_disk_bytes(const std::string& folder);
using FreeDiskBytes = std::function<std::optional<Bytes>(const std::string& folder)>;

// The folder to which a run writes its checkpoints, locked for this run while the object lives. Not
// thread-safe.
class CheckpointFolder {
 public:
  // Makes the folder, locks it, and removes what previous processes left unfinished. Keeps the `keep` newest
  // checkpoints, at least 1. Throws InvalidInput if it cannot be written, or another process has locked it.
  // `free`: tells the room for each checkpoint.
  CheckpointFolder(std::string folder, std::uint64_t keep, FreeDiskBytes free = free_disk_bytes);
  // Call before a best checkpoint is written. Throws InvalidInput if `best` exists and is no link: a copy of
  // a run's folder that followed links has a folder of this name, which cannot be replaced.
  void require_best_link() const;
  ~CheckpointFolder();  // removes the folder if the constructor made it and it is empty
  CheckpointFolder(const CheckpointFolder&) = delete;
  CheckpointFolder& operator=(const CheckpointFolder&) = delete;

  // Reads a part of a value, by its place in `state.tensors`.
  using ReadValue = std::function<void(std::size_t tensor, Bytes offset, std::span<std::byte> into)>;

  // Throws Error, with both numbers, if the disk has too little room for the files of `state`. What the
  // checkpoints there take is no room: none of them goes before the new one is complete.
  void require_room(const CheckpointState& state) const;
  // Writes that many bytes to the disk as a checkpoint is written, flushed, and removes them. Returns the
  // seconds. Throws Error if the disk refuses.
  double measure_write(Bytes bytes) const;

  // Writes `state` and its checksums, and then removes checkpoints that are older than the newest `keep` up
  // to this step; later ones, of a run that was given up, stay until their step comes again. When it returns
  // the checkpoint is on the disk. A folder that was removed meanwhile is made again. Throws Error if the
  // disk has no room (require_room) or refuses: then older checkpoints are as they were and nothing of this
  // one is left.
  // CheckpointRank::best: the link `best` leads to this checkpoint from then on; the one that it leads to is
  // kept beside the newest `keep`.
  void write(CheckpointState state, const ReadValue& read, CheckpointRank rank = CheckpointRank::newest);

  const std::string& path() const { return folder_; }
  // Removes the folder if this run made it and it is empty, as the destructor does, for a process that ends
  // without destructors. May be called from any thread.
  void remove_unused() const;

 private:
  void make_again();
  void remove_older(std::uint64_t step) const;

  bool made_ = false;  // the folder was not there; declared first, since making `folder_` sets it
  std::string folder_;
  std::uint64_t keep_;
  FreeDiskBytes free_;
  int lock_ = -1;
};

// Whether a save goes on beside the training.
enum class Saving : std::uint8_t {
  background,  // a thread writes a copy that lies on the host
  blocking,    // no copy: `save` returns when the checkpoint is written
};

// Saves a graph's state at step boundaries. Not thread-safe: one caller. Owns the thread that writes in the
// background.
class CheckpointSaver {
 public:
  // Background: allocates the host copy of the whole state at once, so that no later save lacks memory;
  // throws OutOfMemory. `folder` must outlive the saver and be used by nobody else meanwhile.
  CheckpointSaver(CheckpointFolder& folder, const Graph& graph, Saving saving);
  ~CheckpointSaver();  // finishes the save that has begun

  Bytes copy_bytes() const;  // size of the host copy; 0 without one

  // Saves `state` (without tensors) and the values of `access`. Background: waits for the previous save,
  // copies, and returns; nothing is copied if the disk has no room. Rethrows what `access` throws;
  // `take_failures` has the errors of the disk.
  void save(CheckpointState state, const StateAccess& access, CheckpointRank rank = CheckpointRank::newest);
  // Waits until nothing is being written.
  void finish();
  // Returns a sentence for each save that failed since the last call. Training can go on, and so can the next
  // save.
  std::vector<std::string> take_failures();
  // Returns the step and the time of the first checkpoint that was written to its end; nullopt before that.
  struct FirstWrite {
    std::uint64_t step = 0;
    double seconds = 0;
  };
  std::optional<FirstWrite> first_write() const;

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace stowage
