// --checkpoint and --resume: where a run begins, and what it saves.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "samples/options/options.h"
#include "samples/run/patience.h"
#include "samples/task/task.h"
#include "stowage/checkpoint.h"
#include "stowage/engine_group.h"
#include "tools/console/underway.h"

namespace stowage::samples {

// Returns the fields that a resumed run must have in common with the run that
// it continues. `task`: Task::configuration.
std::map<std::string, std::string> configuration_of(const Options& options,
                                                    const std::map<std::string, std::string>& task);

// The field of a checkpoint's configuration; runs with f32 moments have none.
inline constexpr const char* moments_field = "optimizer.moments";

// Returns the bytes of the copy of the state that checkpoints are written from; 0 if none is made.
Bytes copy_bytes(const Options& options, const Graph& graph);

// Returns the host memory that is left to each device's plan beside the copy that checkpoints are written
// from. Throws InvalidInput naming --host-memory if the copy takes it all.
Budget budget_beside_copy(const Options& options, const Graph& graph);

// Returns the checkpoint of --resume PATH. Throws InvalidInput, also for a folder of checkpoints, of which it
// names the newest.
Checkpoint checkpoint_at(const std::string& path);

class RunCheckpoints {
 public:
  // Makes and locks the folder, and reads and checks the checkpoint to resume from, both before the work.
  // Does neither if --plan-only is given, but reads what the checkpoint says of the head. A resumed run takes
  // the head's chunk and the rows of its blocks from its checkpoint, unless --head-chunk or --table-rows is
  // given: `options` then says them. Throws InvalidInput naming the flag. `options` and `task` must outlive
  // it. If not `writes`, as for ranks that do not lead, there is no folder: it begins with the checkpoint of
  // --resume PATH, and saves none. `free`: tells the room for each checkpoint.
  RunCheckpoints(Options& options, const Task& task, bool writes = true,
                 const FreeDiskBytes& free = free_disk_bytes);

  // The model of `options`, before what follows; it must outlive this. Throws InvalidInput naming --resume
  // where the checkpoint has other tensors.
  void take_graph(const Graph& graph);

  bool resumes() const { return start_.has_value(); }
  // Path of the checkpoint to resume from.
  std::string start() const { return resumes() ? start_->folder() : ""; }
  std::uint64_t first_step() const { return resumes() ? start_->state().step : 0; }
  // The loss scale of the first step in fp16: the checkpoint's, or --loss-scale. Other types have none.
  std::optional<LossScale> first_loss_scale() const;

  // Returns the lines for the user about where the run begins.
  const std::string& notes() const { return notes_; }
  // Returns the values of the checkpoint to resume from, which must be there, with a graph that was taken.
  CheckpointValues values() const { return {*start_, *graph_}; }

  // Loads the checkpoint's values into `engine`, which was made with first_step(), allocates the host copy,
  // and measures the disk. Returns lines for the user, among them the bytes and the expected time of a
  // checkpoint; "" where there is nothing to tell.
  std::string begin(EngineGroup& engine);
  // Takes the methods that computed attention in the step that was made (attention_methods). Checkpoints
  // record them, since bits depend on them. Throws InvalidInput if the run that this one goes on with had
  // others, unless STOWAGE_ATTENTION is set: then prints a warning, once.
  void made_with(const std::string& attention);
  // Takes the loss scale of the next step, which checkpoints record.
  void scaled(const LossScale& next) { loss_scale_ = next; }
  // Takes the loss that was measured behind the last step. Returns whether it is the least so far, whose
  // checkpoint after_step then keeps; never without --keep-best.
  bool evaluated(const EngineGroup& engine, double loss);
  // The count of evaluations for --patience.
  const Patience& patience() const { return patience_; }
  // Returns the checkpoint that --export writes with --patience: the best one of this run. nullopt: the
  // export has the last step's weights.
  std::optional<BestCheckpoint> best_to_export() const;
  // Saves if it is due. A failure of the disk, or too little room there, is reported on stderr, and the run
  // goes on. Values that are not finite are not saved: throws Error, and the checkpoints before stay. Returns
  // a line for the user once the first checkpoint is written, else "".
  std::string after_step(EngineGroup& engine);
  // Saves the last step unless it is saved already, and waits until it is on the disk. Returns what
  // after_step does.
  std::string finish(EngineGroup& engine);
  // Throws Error if a save has failed, or was left out for lack of room.
  void require_saved() const;
  // Waits for a running save. Returns the path of the newest checkpoint of fewer steps than the engine has
  // completed, or of the checkpoint that the run began with; "" if there is none.
  std::string last_before(const EngineGroup& engine);

 private:
  void take_start();
  void keep_head(const CheckpointState& state, const std::string& folder);
  void keep_planned_head();
  void keep_training(std::map<std::string, std::string>& wanted);
  void take_best();
  void allow_changes(std::map<std::string, std::string>& wanted);
  void start_saver();
  std::string size_and_time() const;
  void start_patience();
  std::string first_write();
  CheckpointState state_at(std::uint64_t step) const;
  void save(EngineGroup& engine, CheckpointRank rank = CheckpointRank::newest);
  void tell_failures();

  Options& options_;
  const Task& task_;
  const Graph* graph_ = nullptr;
  std::map<std::string, std::string> configuration_;
  std::optional<CheckpointFolder> folder_;
  std::optional<Checkpoint> start_;
  std::string notes_;
  std::optional<CheckpointSaver> saver_;  // declared behind the folder that it writes to
  std::uint64_t saved_ = 0;               // the step of the newest checkpoint that was begun
  std::optional<LossScale> loss_scale_;
  std::optional<double> best_;  // least evaluation loss so far
  std::optional<double> loss_;  // evaluation loss behind step `evaluated_`
  std::uint64_t evaluated_ = 0;
  bool is_best_ = false;  // `loss_` is the least so far, until its checkpoint is begun
  Patience patience_;
  bool told_first_ = false;  // the user was told of the first checkpoint that was written
  bool failed_ = false;
  std::string before_;  // attention methods of the checkpoint that is resumed, until they were compared
  OnAbandon undo_{[this] {
    if (folder_) folder_->remove_unused();
  }};
};

}  // namespace stowage::samples
