// Task: the model that a program trains, the inputs of each step, and the description of both. The rest of a
// run is the same for every program.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "samples/options/options.h"
#include "stowage/graph_builder.h"
#include "stowage/model_files.h"
#include "stowage/models.h"
#include "stowage/tokenizer.h"

namespace stowage::samples {

// A figure that the loss is compared with.
struct Yardstick {
  std::string name;  // name such as "byte-bigram entropy"
  double nats = 0;
  std::string below, above;  // meaning of a loss below the figure, and of one that is not
};

// A description of the data for people.
struct DataDescription {
  std::string text;            // such as "kjv.txt: 4,404,412 bytes, …"
  std::string unit = "bytes";  // unit in which sequences are counted
  std::optional<Yardstick> yardstick;
  std::string loss_of;  // parts that the loss is the sum of, if there are several
};

// Measurements on data that is not trained on.
struct Evaluation {
  std::string text;                                    // one line for people
  std::vector<std::pair<std::string, double>> values;  // names and values for the log
  double loss = 0;                                     // the figure by which models are compared
};

// A model that evaluates (GraphBuilder::Trained::none): its loss is the mean over the targets of a batch.
struct EvaluationModel {
  BuiltModel built;
  Graph graph;
};
// Takes the inputs of an EvaluationModel, in their order; returns the loss.
using MeasureLoss = std::function<double(const std::vector<std::span<const std::int32_t>>&)>;

// A parameter's value by its name, in f32.
using ReadParameter = std::function<std::vector<std::byte>(const std::string& name)>;
// Takes a piece of text; returns whether to go on.
using EmitText = std::function<bool(std::string_view)>;

class Task {
 public:
  Task() = default;
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  virtual ~Task() = default;

  // Call it before any inputs: from here on only this part of each batch is needed, as others read the rest.
  // The task may still give the whole batch.
  virtual void take_share(BatchShare /*share*/) {}
  // Returns BuiltModel::inputs at a step, which depend on nothing that happened before. The inputs are those
  // of the whole batch, and valid until the next call; samples beyond this task's share may be of any tokens
  // that there are.
  virtual std::vector<std::span<const std::int32_t>> inputs(std::uint64_t step) = 0;

  // Returns the samples of an epoch, which hold the data once.
  virtual std::uint64_t samples() const = 0;

  virtual DataDescription data() const = 0;
  // Returns what a resumed run must have in common beside the options: kind of model, data, tokens.
  virtual std::map<std::string, std::string> configuration() const = 0;
  // Returns the place of a step in the data.
  virtual std::map<std::string, std::int64_t> position(std::uint64_t step) const = 0;

  // Return the contents of config.json, and the files that belong beside it (name to contents).
  virtual ModelDescription description() const = 0;
  virtual std::map<std::string, std::string> files() const { return {}; }

  // Evaluates on the CPU, in f32 and without dropout; equal parameters give equal values. Call
  // it only with --evaluate-every, and evaluation_model too.
  virtual Evaluation evaluate(const ReadParameter& read) = 0;
  // Returns the model for evaluations on a device, which depends on the options alone; nothing for a task
  // whose measures need more than a loss.
  virtual std::optional<EvaluationModel> evaluation_model() const { return std::nullopt; }
  // Evaluates by the losses of evaluation_model. Requires that there is one.
  virtual Evaluation evaluate_by(const MeasureLoss& loss);
  // Returns the batches of evaluation_model that an evaluation makes.
  virtual std::uint64_t evaluation_batches() const { return 0; }
  // Returns the names of an evaluation's values, in their order.
  virtual std::vector<std::string> measures() const = 0;

  // Writes text from the model, for --sample. A model that writes none does nothing.
  virtual void sample(const ReadParameter& /*read*/, const EmitText& /*emit*/) const {}
};

// Reads the data and the vocabulary that `options` name, and sets the model's vocabulary in them; they must
// outlive the task. Throws InvalidInput that names the flag and the file.
std::unique_ptr<Task> make_task(Options& options);

// Returns the tokenizer of --tokenizer, or that of bytes. Throws InvalidInput naming the flag and the file.
std::unique_ptr<Tokenizer> tokenizer_of(const Options& options);

// Returns a fingerprint of all tokens by id, for a configuration.
std::string fingerprint(const Tokenizer& tokenizer);

// Sets the model's vocabulary, padded to a multiple of 64: the vocabulary of --init, which may have more ids
// than `tokens`, or `tokens` ids. `needs` says whose ids they are. Throws InvalidInput if the model of --init
// has fewer.
void set_vocabulary(Options& options, std::int64_t tokens, const std::string& needs);

}  // namespace stowage::samples
