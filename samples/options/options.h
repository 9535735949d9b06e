// Options: the command line of train_gpt and train_bert.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "samples/options/schedule.h"
#include "stowage/error.h"
#include "stowage/graph_builder.h"
#include "stowage/loss_scale.h"
#include "stowage/machine.h"
#include "stowage/model_files.h"
#include "stowage/models.h"
#include "stowage/planner.h"

namespace stowage::samples {

// train_gpt trains families that generate text, train_bert a BERT.
enum class Program : std::uint8_t { train_gpt, train_bert };

// Where a model is evaluated: beside its training on the device, or on the CPU in f32, op by op.
enum class EvaluatedOn : std::uint8_t { device, cpu };

struct Options {
  Program program = Program::train_gpt;
  // Path of the text; for a GPT also of token shards. Empty: a GPT that copies_weights or generates.
  std::string data;
  bool stored_shards = false;  // without `data`: the checkpoint's run was trained on token shards
  std::string tokenizer;  // path of tokenizer files; empty: a GPT's tokens are bytes, a BERT's are learned
  std::int32_t learned_vocabulary = 300;  // byte pairs to learn for a BERT without a tokenizer
  std::string init;  // model files to start from: a folder or a file; empty: random weights
  std::optional<ModelDescription> initial;  // description of the model at `init`
  const ModelFamily* family = &gpt_family;  // family of the model: that of `init`, or the program's own
  ModelConfig model;
  DataType type = DataType::f32;       // type of weights and activations
  DataType file_type = DataType::f32;  // type of most values in the files of --init
  std::uint64_t steps = 200;
  // Number of epochs, given instead of `steps`; `steps` is computed from it once the data is known.
  std::optional<double> epochs;
  double learning_rate = 1e-3;
  std::uint64_t warmup = 30;  // number of steps
  double weight_decay = 0.1;
  Descent descent = Descent::cosine;
  double final_share = 0.1;  // share of the learning rate that the last step has
  DecayedParameters decayed = DecayedParameters::matrices;
  // AdamW's constants, as the model's reference has them; for a BERT see default_options.
  double beta1 = AdamW{}.beta1, beta2 = AdamW{}.beta2, epsilon = AdamW{}.epsilon;
  double clip = 1.0;
  Moments moments = Moments::f32;
  double loss_scale = LossScale::first;  // loss scale of the first step, in fp16
  std::uint64_t seed = 1;

  std::string device = "auto";  // a name that choose_device takes
  std::int64_t devices = 1;     // number of devices that train the model together
  int processes = 1;            // number of processes, each with one device; 1: this process has all devices
  std::string machine;  // a shipped name or a file's path; empty: the machine is measured at the start
  Budget budget;        // device memory of each device; host memory for all of them together
  PlanOptions plan;
  std::optional<bool> speculate;  // StepOptions::speculate
  bool pageable_fallback = true;  // EngineOptions::pageable_fallback
  int threads = 0;                // 0: all cores
  // Simulated link, each way.
  Link link{.bytes_per_second = 8e9, .latency_seconds = 10e-6, .throttled = true};
  double link_both_bytes_per_second = as_alone;  // rate of the simulated link, each way, while both are busy

  std::string checkpoint_folder;         // empty: no checkpoints
  std::uint64_t checkpoint_every = 100;  // steps between checkpoints
  std::uint64_t keep = 3;                // number of newest checkpoints to keep
  // Steps wait until a checkpoint is written, and no copy is made on the host.
  bool checkpoint_blocking = false;
  bool keep_best =
      false;  // also keeps the checkpoint with the least evaluation loss; --patience means it too
  bool resume = false;
  std::string resume_from;        // path of a checkpoint; empty: the newest of `checkpoint_folder`
  std::set<std::string> changed;  // flags given, of those that a resumed run may change

  std::uint64_t evaluate_every = 0;       // steps between evaluations; 0: none, and no data is held out
  double evaluation_share = 0.05;         // share of the text, at its end, that is held out
  std::string evaluation_data;            // data to evaluate on instead of the text's end
  std::uint64_t evaluation_samples = 64;  // most samples of an evaluation
  // Not set: on the device where a plan for that is found.
  std::optional<EvaluatedOn> evaluate_on;
  std::uint64_t patience = 0;  // evaluations in a row without a new least loss that end the run; 0: none do

  std::optional<std::string> generate;      // prompt, for writing text instead of training
  std::optional<std::string> generate_ids;  // file with the prompt's ids, or "-"; ids are written, too
  std::optional<std::string> stop_ids;      // ids separated by commas, or "none"; not set: those of --init
  double temperature = 0.8;
  std::uint64_t generated_tokens = 200;

  bool plan_only = false;
  bool trains_nothing = false;  // --steps 0 was given; `steps` becomes the steps that a resumed run has made
  bool verify = false;          // compares the bits of every replay
  std::uint64_t sample_tokens = 0;
  // Paths of output files; empty: the output is not wanted.
  std::string plan_file;
  std::string log_file;
  std::string trace_file;
  std::string report_file;
  std::string weights_file;
  std::string export_folder;
  SavedType export_type = SavedType::usual;
};

inline Schedule schedule_of(const Options& options) {
  return {.peak = options.learning_rate,
          .warmup = options.warmup,
          .steps = options.steps,
          .descent = options.descent,
          .final_share = options.final_share};
}

// Returns the optimizer that the options ask for.
inline AdamW optimizer_of(const Options& options) {
  return {.beta1 = options.beta1,
          .beta2 = options.beta2,
          .epsilon = options.epsilon,
          .weight_decay = options.weight_decay,
          .decayed = options.decayed,
          .clip = options.clip,
          .moments = options.moments};
}

// True for options that write text instead of training.
inline bool writes_text(const Options& options) { return options.generate || options.generate_ids; }

// Returns the rows of the model's table of positions: --init may have more than --sequence takes.
inline std::int64_t positions_of(const Options& options) {
  return options.initial ? options.initial->config.sequence : options.model.sequence;
}

// Returns whether the run only copies weights from a checkpoint to --weights or --export, for which it needs
// no device, and train_gpt no data.
bool copies_weights(const Options& options);

// Returns "train_gpt" or "train_bert".
const char* program_name(Program program);

// Thrown for a number of devices or processes that train no model together.
class WrongNumber : public InvalidInput {
 public:
  using InvalidInput::InvalidInput;
};

struct CommandLine {
  Options options;
  std::string help;  // help text to print instead of running, unless empty
};

// Throws InvalidInput, one line that names the flag and says what it takes; WrongNumber where that is the
// mistake. `processes`: that a launcher has started with these arguments; several are as many devices.
CommandLine parse_command_line(int count, const char* const* arguments, Program program = Program::train_gpt,
                               int processes = 1);

// Returns "--devices 4", or "a launch of 4 processes", for messages.
std::string devices_given(const Options& options);

}  // namespace stowage::samples
