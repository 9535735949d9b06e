// A run's model on its devices, step by step.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "samples/options/options.h"
#include "samples/report/progress.h"
#include "samples/report/report.h"
#include "samples/report/run_history.h"
#include "samples/report/step_log.h"
#include "samples/run/checkpoints.h"
#include "samples/run/device_evaluation.h"
#include "samples/run/job.h"
#include "samples/run/run_outputs.h"
#include "samples/task/task.h"
#include "stowage/communicator.h"
#include "stowage/device.h"
#include "stowage/engine_group.h"
#include "stowage/graph.h"
#include "stowage/loss_scale.h"

namespace stowage::samples {

// The model of a run, as its ranks see it.
struct Model {
  BuiltModel built;          // loss and inputs of `graph`
  Graph graph;               // graph with whole parameters
  std::vector<Graph> ranks;  // graph of each device of this process, if the run has several
  Graph& planned() { return ranks.empty() ? graph : ranks.front(); }
};

// Builds the model for the process of rank `rank` of options.processes. Throws InvalidInput for sizes that
// make no model.
Model build_model(const Options& options, int rank);

// Both arguments must outlive the result.
ReadParameter reader_of(const Graph& graph, EngineGroup& engine);

// Prints on stdout at once: a pipe's reader sees lines as they come.
void print(const std::string& text);

// The devices of this process.
struct Devices {
  std::vector<std::unique_ptr<Device>> all;
  // Communicator of the one device, if other processes have ranks.
  std::unique_ptr<Communicator> communicator;
};

// The ranks of a job make all calls together. Arguments must outlive it.
class Trainer {
 public:
  // Makes engines that meet those of the other ranks (EngineOptions::communicator). `evaluation`: null where
  // the CPU evaluates.
  Trainer(const Setup& setup, const Model& model, Task& task, RunCheckpoints& checkpoints,
          const Devices& devices, const EvaluationPlan* evaluation, Failures& failures, Job& job);

  // Call it before `run`. If the log cannot be written, reports that, and the run goes without it. Throws
  // InvalidInput if another run holds the log.
  void start_log(StepLog& log);
  // Makes all steps, or the steps up to an interrupt, or up to an evaluation that ends the run (--patience).
  void run(StepLog& log);
  // True once --patience has ended the run before its last step; the same on all ranks.
  bool ended_early() const { return out_of_patience_ && engine_.completed_steps() < options_.steps; }

  EngineGroup& engine() { return engine_; }
  double pinning_seconds() const;
  const RunStatistics& statistics() const { return statistics_; }
  RunRecorder& recorder() { return recorder_; }
  // Returns the rows of all ranks, once `run` has come to its end; none for a run on one device.
  const std::vector<RankRow>& rank_rows() const { return rank_rows_; }

 private:
  template <class Action>
  void write_log(Action action) {
    if (logs_) logs_ = failures_.spare(action);
  }
  void add_reports();
  std::vector<RankRow> gather_rows();
  void make_steps(StepLog& log, Progress& progress);
  StepRecord make_step(std::uint64_t step);
  void evaluate(StepLog& log, Progress& progress);
  void share_patience();
  void evaluate_here(StepLog& log, Progress& progress);
  void measure_codes(StepLog& log, Progress& progress);

  const Setup& setup_;
  const Options& options_;
  const Model& model_;
  Task& task_;
  RunCheckpoints& checkpoints_;
  Failures& failures_;
  Job& job_;
  bool logs_ = true;  // false once a write of the log has failed
  const bool trains_nothing_;
  bool out_of_patience_ = false;
  std::optional<LossScale> loss_scale_;  // loss scale of the next step, in fp16
  const Devices& devices_;
  EngineGroup engine_;
  std::optional<DeviceEvaluation> evaluation_;
  const Bytes unpinned_bytes_;
  RunStatistics statistics_;
  std::vector<RunStatistics> of_ranks_;  // statistics of this process's ranks
  std::vector<RankRow> rank_rows_;
  RunRecorder recorder_;
};

}  // namespace stowage::samples
