// EngineGroup: one model trained by one or several devices, as if by one Engine. All devices are in this
// process, or each is in a process of its own.
//
// A device is a rank, with an engine of its own; all run the same plan. Parameters and optimizer state are
// read and written whole, by the tensors of the graph that one device would train, `whole`. A checkpoint of
// one group therefore serves any other with as many micro-batches and gradient groups in all. Losses, norms
// and every bit of these values are those of one device.
//
// Not thread-safe: one caller. Calls run on a thread for each rank of the process, and return when all have.
// If ranks throw, the call throws one of their errors: the one that made the others fail.
//
// Processes make the same calls with the same arguments, in the same order. Constructors, `step` and `read`
// meet those of the others, whose shares travel in pieces of at most 1 MiB, and throw CommunicatorError if
// another process fails or dies; `write` and `fill` need no other process. Nothing that ranks decide alike
// may depend on a measurement: let one rank plan for all.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "stowage/communicator.h"
#include "stowage/engine.h"

namespace stowage {

class EngineGroup {
 public:
  // `ranks`: the graph of each device, in the order of devices; empty for one device, which trains `whole`.
  // `plan` is a plan of any of these graphs. Several devices are all simulated ones
  // (make_local_communicators, which takes `link`), or all CUDA cards (open_nccl_communicator; tested over
  // fakes of CUDA and NCCL). `options.communicator` is ignored. Graphs and plan are copied; devices outlive
  // the group. Throws InvalidInput if the graphs do not belong together, and what Engine throws.
  EngineGroup(std::span<Device* const> devices, const Graph& whole, std::span<const Graph> ranks,
              const Plan& plan, const EngineOptions& options, const CommunicatorOptions& link = {});
  // `device`: this process's device, which is the communicator's rank and trains the graph `rank`. Both
  // outlive the group.
  EngineGroup(Device& device, Communicator& communicator, const Graph& whole, const Graph& rank,
              const Plan& plan, const EngineOptions& options);
  // One device.
  EngineGroup(Device& device, const Graph& graph, const Plan& plan, const EngineOptions& options = {});
  ~EngineGroup();
  EngineGroup(const EngineGroup&) = delete;
  EngineGroup& operator=(const EngineGroup&) = delete;

  std::size_t size() const;  // number of ranks in all processes
  Engine& only();            // engine of the one device; throws InvalidInput if there are several

  // Makes a step, as Engine::step. `inputs` are those of `whole`. Returns the report of the process's first
  // rank, with the largest peak of its ranks. After an error a group of several devices is lost, since some
  // may have made the step: other calls throw, and a new group goes on from a checkpoint.
  StepReport step(std::span<const InputData> inputs, const StepOptions& options);
  // Returns each rank's own report of the last step that all have made, for the ranks of this process.
  std::span<const StepReport> reports() const;
  void drain();
  std::uint64_t completed_steps() const;
  std::span<const BucketId> unpinned() const;  // buckets of the process's first rank that has some
  std::vector<Interval> last_timeline();       // timeline of the process's first rank

  // Read and write whole values of tensors of `whole`, as Engine's functions of these names do.
  std::vector<std::byte> read(TensorId tensor);
  void read(TensorId tensor, Bytes offset, std::span<std::byte> into);
  void write(TensorId tensor, std::span<const std::byte> value);
  void write(TensorId tensor, Bytes offset, std::span<const std::byte> value);
  void fill(TensorId tensor, const Engine::FillPiece& piece);

  // Calls `work` in rank 0's process, for example to write values to a file. `work` may read values as often
  // as it likes and make no other call of the group. The other processes call this too, and hand over their
  // shares meanwhile. An exception of `work` is rethrown in rank 0's process alone. A group in one process
  // just calls `work`.
  void on_first(const std::function<void()>& work);

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace stowage
