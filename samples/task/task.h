// Task: what a program trains: its model, what goes into each step, and what is told of both. All else of a
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

// An input of a model: whole numbers from `least` on, below `values`.
struct ModelInput {
  Value value;
  std::int32_t values = 1;
  std::int32_t least = 0;
};

struct BuiltModel {
  Value loss;
  std::vector<ModelInput> inputs;  // in the order in which Task::inputs gives them
};

// Builds a task's model with these sizes.
using BuildModel = std::function<BuiltModel(GraphBuilder&, const GptConfig& sizes)>;

// What the loss is held against.
struct Yardstick {
  std::string name;  // "byte-bigram entropy"
  double nats = 0;
  std::string below, above;  // what it means where the loss is below, and where it is not
};

// What people are told of the data.
struct DataDescription {
  std::string text;            // "kjv.txt: 4,404,412 bytes, …"
  std::string unit = "bytes";  // that sequences are counted in
  std::optional<Yardstick> yardstick;
  std::string loss_of;  // what the loss is the sum of, where it has parts
};

// What was measured of data that is not trained on.
struct Evaluation {
  std::string text;                                    // for people, one line
  std::vector<std::pair<std::string, double>> values;  // for the log
  double loss = 0;                                     // by which models are compared
};

// A parameter's value by its name, in f32.
using ReadParameter = std::function<std::vector<std::byte>(const std::string& name)>;
// Takes a piece of text, and answers whether to go on.
using EmitText = std::function<bool(std::string_view)>;

class Task {
 public:
  Task() = default;
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  virtual ~Task() = default;

  virtual BuiltModel build(GraphBuilder& builder, const GptConfig& sizes) const = 0;

  // Before any inputs: of each batch this part alone is needed from here on, as others read the rest. All
  // of it may still be given.
  virtual void take_share(BatchShare /*share*/) {}
  // What goes into the model at a step, which depends on nothing that happened before. Valid until the next
  // call. It is of the whole batch; samples beyond this task's share may be of any tokens that there are.
  virtual std::vector<std::span<const std::int32_t>> inputs(std::uint64_t step) = 0;

  // As many as hold the data once: an epoch.
  virtual std::uint64_t samples() const = 0;

  virtual DataDescription data() const = 0;
  // What a resumed run must have in common beside the options: kind of model, data, tokens.
  virtual std::map<std::string, std::string> configuration() const = 0;
  // Where in the data that step stands.
  virtual std::map<std::string, std::int64_t> position(std::uint64_t step) const = 0;

  // For config.json, and files that belong beside it (name to contents).
  virtual ModelDescription description() const = 0;
  virtual std::map<std::string, std::string> files() const { return {}; }

  // Without dropout, on the CPU; the same for the same parameters. Call it only with --evaluate-every.
  virtual Evaluation evaluate(const ReadParameter& read) = 0;
  // The names of its values, in their order.
  virtual std::vector<std::string> measures() const = 0;

  // --sample: text from the model. A model that writes none does nothing.
  virtual void sample(const ReadParameter& /*read*/, const EmitText& /*emit*/) const {}
};

// Reads the data and the vocabulary that `options` name, and sets the model's vocabulary in them; they must
// outlive the task. Throws InvalidInput that names the flag and the file.
std::unique_ptr<Task> make_task(Options& options);

// The tokenizer of --tokenizer, or that of bytes. Throws InvalidInput naming the flag and the file.
std::unique_ptr<Tokenizer> tokenizer_of(const Options& options);

// For a configuration: all tokens by id.
std::string fingerprint(const Tokenizer& tokenizer);

// A model's vocabulary holds `tokens` ids: --init's, which may have more, or these. It is padded to a
// multiple of 64. `needs` says whose ids they are. Throws InvalidInput where the model of --init has fewer.
void set_vocabulary(Options& options, std::int64_t tokens, const std::string& needs);

}  // namespace stowage::samples
