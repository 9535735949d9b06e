// --init and --export: a model from files of Hugging Face, and as such files.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "samples/options.h"
#include "samples/task.h"
#include "stowage/engine.h"
#include "stowage/error.h"
#include "stowage/model_files.h"

namespace stowage::samples {

// Which of the model's flags the command line has.
struct GivenSizes {
  bool layers = false, width = false, heads = false, sequence = false, dropout = false;
};

// With --init: reads its config.json and takes the model's sizes, and dropout, from it. Throws InvalidInput
// for a model that is not computed here, or that a given flag contradicts, naming both.
void take_initial_sizes(Options& options, const GivenSizes& given);

// Runs `action`, and puts --init and its place before what it complains of, where there is one.
template <class Action>
auto about_initial(const Options& options, Action action) {
  try {
    return action();
  } catch (const InvalidInput& error) {
    throw InvalidInput(options.init.empty() ? error.what() : "--init " + options.init + ": " + error.what());
  }
}

// The files of --init; nothing without it.
class InitialModel {
 public:
  // Throws InvalidInput naming --init: the files are not those of the graph's model.
  InitialModel(const Options& options, const Graph& graph);

  // Parameters of `engine` from the files. Returns a line for the user, "" without files.
  std::string load(const Graph& graph, Engine& engine) const;

  const TensorFiles* files() const { return files_ ? &*files_ : nullptr; }

 private:
  const Options& options_;
  std::optional<TensorFiles> files_;
};

// The folder of --export; nothing without it, or with --plan-only. Made before the work, so that a bad place
// is told at once.
class ExportedModel {
 public:
  // Throws InvalidInput naming --export.
  explicit ExportedModel(const Options& options);

  // Writes the parameters, what the task has beside them, and the folder's name. Positions that were not
  // trained on are those of `initial`. Returns a line for the user, "" without a folder.
  std::string write(const Task& task, const Graph& graph, Engine& engine, const InitialModel& initial);

 private:
  const Options& options_;
  std::unique_ptr<ExportFolder> folder_;
};

}  // namespace stowage::samples
