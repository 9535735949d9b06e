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

struct Options {
  ModelKind kind = ModelKind::gpt2;       // which program it is
  std::string data;                       // path of the text; of a GPT also of token shards
  std::string tokenizer;                  // of files; empty: a GPT's tokens are bytes, a BERT's are learned
  std::int32_t learned_vocabulary = 300;  // of a BERT without a tokenizer: byte pairs to learn
  std::string init;  // model files to start from: a folder or a file; empty: random weights
  std::optional<ModelDescription> initial;  // of `init`
  GptConfig model;                          // also a BERT's sizes: see bert_sizes
  DataType type = DataType::f32;            // of weights and activations
  std::uint64_t steps = 200;
  std::optional<double> epochs;  // instead of `steps`, which they become once the data is known
  double learning_rate = 1e-3;
  std::uint64_t warmup = 30;  // steps
  double weight_decay = 0.1;
  Descent descent = Descent::cosine;
  double final_share = 0.1;  // of the learning rate, at the last step
  DecayedParameters decayed = DecayedParameters::matrices;
  // AdamW's, as the model's reference has them: of a BERT see default_options.
  double beta1 = AdamW{}.beta1, beta2 = AdamW{}.beta2, epsilon = AdamW{}.epsilon;
  double clip = 1.0;
  Moments moments = Moments::f32;
  double loss_scale = LossScale::first;  // of the first step, in fp16
  std::uint64_t seed = 1;

  std::string device = "auto";  // as choose_device takes it
  std::int64_t devices = 1;     // that train the model together
  int processes = 1;            // each with one of the devices; 1: this one has all
  std::string machine;          // a shipped name or a file's path; empty: it is measured at the start
  Budget budget;                // of each device, and of the host for all of them
  PlanOptions plan;
  std::optional<bool> speculate;                                                    // StepOptions::speculate
  bool pageable_fallback = true;                                                    // EngineOptions
  int threads = 0;                                                                  // 0: all cores
  Link link{.bytes_per_second = 8e9, .latency_seconds = 10e-6, .throttled = true};  // simulated, each way
  double link_both_bytes_per_second = as_alone;  // simulated, each way while both are busy

  std::string checkpoint_folder;         // empty: no checkpoints
  std::uint64_t checkpoint_every = 100;  // steps
  std::uint64_t keep = 3;                // of the newest checkpoints
  bool checkpoint_blocking = false;      // steps wait for checkpoints, without a copy on the host
  bool keep_best = false;                // the checkpoint with the least evaluation loss too
  bool resume = false;
  std::string resume_from;        // a checkpoint; empty: the newest of `checkpoint_folder`
  std::set<std::string> changed;  // of the flags that a resumed run may change: those that are given

  std::uint64_t evaluate_every = 0;       // steps; 0: never, and nothing is held out
  double evaluation_share = 0.05;         // of the text, its tail, held out
  std::string evaluation_data;            // instead of the tail
  std::uint64_t evaluation_samples = 64;  // at most

  std::optional<std::string> generate;  // the prompt: write text instead of training
  double temperature = 0.8;
  std::uint64_t generated_tokens = 200;

  bool plan_only = false;
  bool trains_nothing = false;  // --steps 0; `steps` becomes those that a resumed run has made
  bool verify = false;          // compare the bits of every replay
  std::uint64_t sample_tokens = 0;
  // Paths to write, empty: not wanted.
  std::string plan_file;
  std::string log_file;
  std::string trace_file;
  std::string report_file;
  std::string weights_file;
  std::string export_folder;
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

// Returns the rows of the model's table of positions: --init may have more than --sequence takes.
inline std::int64_t positions_of(const Options& options) {
  return options.initial ? options.initial->positions : options.model.sequence;
}

// "train_gpt" or "train_bert".
const char* program_name(ModelKind kind);

// A BERT with these sizes and its pre-training heads.
BertConfig bert_sizes(const GptConfig& sizes);

// Thrown for a number of devices or processes that train no model together.
class WrongNumber : public InvalidInput {
 public:
  using InvalidInput::InvalidInput;
};

struct CommandLine {
  Options options;
  std::string help;  // not empty: print this and do nothing else
};

// Throws InvalidInput, one line that names the flag and says what it takes; WrongNumber where that is the
// mistake. `processes`: that a launcher has started with these arguments; several are as many devices.
CommandLine parse_command_line(int count, const char* const* arguments, ModelKind kind = ModelKind::gpt2,
                               int processes = 1);

// Returns "--devices 4", or "a launch of 4 processes", for messages.
std::string devices_given(const Options& options);

}  // namespace stowage::samples
