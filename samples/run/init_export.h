// --init and --export: reads a model from files in Hugging Face's format, and writes such files.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "samples/options/options.h"
#include "samples/task/task.h"
#include "stowage/engine_group.h"
#include "stowage/model_files.h"

namespace stowage::samples {

// The model files of --init; empty without --init.
class InitialModel {
 public:
  // Throws InvalidInput naming --init: the files are not those of the graph's model.
  InitialModel(const Options& options, const Graph& graph);

  // Loads the parameters of `engine` from the files. Returns a line for the user, "" without files.
  std::string load(const Graph& graph, EngineGroup& engine) const;

  const TensorFiles* files() const { return files_ ? &*files_ : nullptr; }

 private:
  const Options& options_;
  std::optional<TensorFiles> files_;
};

// The folder of --export; nothing without it, or with --plan-only. The folder is made before the work, so
// that a bad place is reported at once.
class ExportedModel {
 public:
  // Throws InvalidInput naming --export.
  explicit ExportedModel(const Options& options);

  // Writes the parameters that `read` has, the task's files (config, tokenizer) and, for families whose
  // config.json is kept, the source's other files, then gives the finished folder its name. Positions beyond
  // the training's sequence are those of `initial`. `whose`: ends the line for the user, such as "; weights
  // of step 6"; may be empty. Returns that line, "" without a folder.
  using ReadPart = std::function<void(TensorId, Bytes offset, std::span<std::byte> into)>;
  std::string write(const Task& task, const Graph& graph, const ReadPart& read, const InitialModel& initial,
                    const std::string& whose);

 private:
  const Options& options_;
  std::unique_ptr<ExportFolder> folder_;
};

}  // namespace stowage::samples
