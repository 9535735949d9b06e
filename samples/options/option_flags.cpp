#include "samples/options/option_flags.h"

#include <charconv>
#include <limits>

#include "src/models/require_valid.h"

namespace stowage::samples {
namespace {

// Returns an error text, empty if `text` is a seed. CLI11 itself would turn a seed that is too large into the
// largest one.
std::string seed_error(const std::string& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size()) return {};
  return text + " is no whole number from 0 to 18446744073709551615";
}

// Returns an error text for the word that `stowage plan` takes in place of a number of micro-batches.
std::string micro_batches_error(const std::string& text) {
  return text == "auto" ? "auto is for `stowage plan` alone, which says the number to give here" : "";
}

// Returns the check without its description, so that the help shows only the flag's own text.
CLI::Validator quiet(CLI::Validator validator) { return validator.description(""); }

void add_model(CLI::App& app, Options& options, RawOptions& raw) {
  ModelConfig& model = options.model;
  const auto add = [&](const char* flag, auto& value, const char* text, std::int64_t most = most_of_others) {
    app.add_option(flag, value, text)
        ->group("Model")
        ->check(quiet(CLI::Range(std::int64_t{1}, most)))
        ->type_name("N");
  };
  add("--layers", model.layers, "Transformer layers", most_layers);
  add("--width", model.width, "features per token, a multiple of --heads", most_width);
  add("--heads", model.heads, "attention heads");
  add("--sequence", model.sequence, "tokens of a sample (bytes, where there is no tokenizer)");
  add("--batch", model.batch, "samples per step");
  app.add_option("--micro-batches", model.micro_batches,
                 "equal parts of the batch, gradients summed over them")
      ->group("Model")
      ->check(CLI::Validator(micro_batches_error, ""))
      ->check(quiet(CLI::Range(std::int64_t{1}, most_of_others)))
      ->type_name("N");
  add("--gradient-groups", model.gradient_groups,
      "groups of micro-batches whose sums are added in a tree: a power of two that divides --micro-batches; "
      "bits depend on it, so that they need not depend on a number of devices");
  add("--head-chunk", model.head_tokens,
      "tokens whose logits exist at once, where the head is whole: more are faster and take more memory; "
      "bits depend on it "
      "(2048 to 8192, by width and batch; a resumed run goes on with its own)");
  if (options.program == Program::train_gpt)
    app.add_option(
           "--table-rows", model.table_rows,
           "rows of a block of the embedding and head of a Llama or its relatives: fewer need less memory, "
           "0 keeps both whole; bits depend on it (16384; a resumed run goes on with its own)")
        ->group("Model")
        ->check(quiet(CLI::Range(std::int64_t{0}, most_of_others)))
        ->default_str("")
        ->type_name("N");
  app.add_option(
         "--keep-tokens", model.keep_tokens,
         "of a BERT: the share of each sample's tokens that each MLP works on, above 0 and at most 1: "
         "those that received the most attention; the others pass by on the residual; bits depend on it")
      ->group("Model")
      ->type_name("SHARE");
  app.add_option("--dropout", model.dropout, "probability of dropping an activation")
      ->group("Model")
      ->check(quiet(CLI::Range(0.0, 0.99)))
      ->type_name("P");
  app.add_option(
         "--code-activations", raw.code_activations,
         "bits of an element in which large activations are kept for backward: off, they are exact; or "
         "8 or 4, which give other gradients")
      ->group("Model")
      ->check(quiet(CLI::IsMember({"off", "8", "4"})))
      ->type_name("NAME");
  app.add_option("--type", raw.type,
                 "of weights and activations: f32; or bf16 or fp16, with sums in f32 (f32, or with --init "
                 "the files' type)")
      ->group("Model")
      ->check(quiet(CLI::IsMember({"f32", "bf16", "fp16"})))
      ->type_name("NAME");
}

void add_data(CLI::App& app, Options& options) {
  const char* group = "Data";
  const bool gpt = options.program == Program::train_gpt;
  app.add_option("--data", options.data,
                 gpt ? "text to learn, any file of bytes; or token shards of llm.c or of packed samples: a "
                       ".bin file, a folder of "
                       "them, or a pattern in quotes (required)"
                     : "text to learn: sentences end with a line or . ! ?, documents with a blank line "
                       "(required)")
      ->group(group)
      ->type_name(gpt ? "FILE|DIR" : "FILE");
  app.add_option("--tokenizer", options.tokenizer,
                 gpt ? "tokens of the text: tokenizer.json, vocab.json with merges.txt, vocab.txt, or the "
                       "folder of these; without it bytes are tokens"
                     : "tokens of the text: tokenizer.json, vocab.json with merges.txt, vocab.txt, or the "
                       "folder of these; without it byte pairs are learned from the text")
      ->group(group)
      ->type_name("DIR|FILE");
  if (!gpt) {
    app.add_option("--vocabulary", options.learned_vocabulary,
                   "tokens to learn where there is no --tokenizer")
        ->group(group)
        ->check(quiet(CLI::Range(257, 1 << 24)))
        ->type_name("N");
  }
  app.add_option(
         "--init", options.init,
         gpt ? "start from a GPT-2, Llama, Mistral, Qwen2 or Qwen3 of Hugging Face, with its sizes: a "
               "folder of config.json and safetensors, or one of its files; without --tokenizer a "
               "text's bytes are a GPT-2's tokens 0 to 255"
             : "start from a BERT of Hugging Face, with its sizes: a folder of config.json and "
               "safetensors, or one of its files; give its --tokenizer too")
      ->group(group)
      ->type_name("DIR|FILE");
}

void add_training(CLI::App& app, Options& options, RawOptions& raw) {
  const char* group = "Training";
  const auto steps = quiet(CLI::Range(std::uint64_t{0}, std::uint64_t{1} << 40));
  const auto real = quiet(CLI::Range(0.0, 1e6));
  app.add_option(
         "--steps", options.steps,
         "training steps; 0: none, to evaluate, export or sample from what --init or --resume has (an "
         "--export from --resume alone needs no device)")
      ->group(group)
      ->check(steps)
      ->type_name("N");
  app.add_option("--epochs", options.epochs,
                 "instead of --steps: how often to train on as many samples as the data holds")
      ->group(group)
      ->check(quiet(CLI::Range(std::numeric_limits<double>::min(), 1e6)))
      ->type_name("X");
  app.add_option("--learning-rate", options.learning_rate, "its peak, behind the warm-up")
      ->group(group)
      ->check(real)
      ->type_name("X");
  app.add_option("--warmup", options.warmup, "steps of linear warm-up")
      ->group(group)
      ->check(steps)
      ->type_name("N");
  app.add_option("--schedule", raw.schedule,
                 "how the rate falls behind the warm-up: cosine, linear, or constant")
      ->group(group)
      ->check(quiet(CLI::IsMember({"cosine", "linear", "constant"})))
      ->type_name("NAME");
  app.add_option("--final-share", options.final_share,
                 "of --learning-rate, that a cosine or a line ends in at the last step")
      ->group(group)
      ->check(quiet(CLI::Range(0.0, 1.0)))
      ->type_name("X");
  app.add_option("--weight-decay", options.weight_decay, "AdamW's, on what --decay says")
      ->group(group)
      ->check(real)
      ->type_name("X");
  app.add_option("--decay", raw.decay, "matrices: not biases and the norms' gains; or all parameters")
      ->group(group)
      ->check(quiet(CLI::IsMember({"matrices", "all"})))
      ->type_name("NAME");
  const auto add_beta = [&](const char* flag, double& value, const char* text) {
    app.add_option(flag, value, text)->group(group)->check(quiet(CLI::Range(0.0, 0.999999)))->type_name("X");
  };
  add_beta("--beta1", options.beta1, "AdamW's: what the mean of the gradients keeps of itself at each step");
  add_beta("--beta2", options.beta2, "AdamW's: what the mean of their squares keeps");
  app.add_option("--epsilon", options.epsilon, "AdamW's: added to the root of the mean of squares")
      ->group(group)
      ->check(quiet(CLI::Range(1e-30, 1.0)))
      ->type_name("X");
  app.add_option(
         "--moments", raw.moments,
         "type of AdamW's moments of matrices: f32; or bf16 or 8bit, which take 2 bytes or 1 and give "
         "other numbers")
      ->group(group)
      ->check(quiet(CLI::IsMember({"f32", "bf16", "8bit"})))
      ->type_name("NAME");
  app.add_option("--clip", options.clip, "largest global gradient norm, 0: never clip")
      ->group(group)
      ->check(real)
      ->type_name("X");
  app.add_option(
         "--loss-scale", options.loss_scale,
         "with --type fp16, what the loss is multiplied by in the first step: a power of two; later steps "
         "halve it where gradients overflow, and double it where none did for long")
      ->group(group)
      ->type_name("X");
  app.add_option("--seed", options.seed, "of weights, batches, dropout and samples")
      ->group(group)
      ->check(CLI::Validator(seed_error, ""))
      ->type_name("N");
}

void add_machine(CLI::App& app, Options& options, RawOptions& raw) {
  const char* group = "Machine";
  app.add_option("--device", options.device, "auto: a CUDA card if one answers; cuda, cuda:N, or simulated")
      ->group(group)
      ->type_name("NAME");
  app.add_option(
         "--devices", options.devices,
         "devices that train the model together, a power of two: each has its part of every batch, "
         "of the parameters and of AdamW's state. Bits depend on --gradient-groups and --micro-batches, "
         "which are N where they are not given, and not on N itself. Under mpirun or torchrun each "
         "process has a device, and this is not needed")
      ->group(group)
      ->check(quiet(CLI::Range(std::int64_t{1}, std::int64_t{64})))
      ->type_name("N");
  add_machine_options(app, PlanUser::trainer, group, raw.plan);
  app.add_option("--pageable", raw.pageable,
                 "where the host cannot page-lock what transfers touch: auto takes ordinary memory, which is "
                 "slower, and says so; never ends the run. No bit depends on it")
      ->group(group)
      ->check(quiet(CLI::IsMember({"auto", "never"})))
      ->type_name("NAME");
  app.add_option("--link-bandwidth", raw.link_bandwidth,
                 "of the simulated link, each way: 8GB/s, or unthrottled")
      ->group(group)
      ->type_name("RATE");
  app.add_option("--link-both-bandwidth", raw.link_both,
                 "of each way while both are busy; without it the same as alone")
      ->group(group)
      ->type_name("RATE");
  app.add_option("--threads", options.threads, "CPU threads, 0: all cores; beside cards, one less for each")
      ->group(group)
      ->check(quiet(CLI::Range(0, 4096)))
      ->type_name("N");
}

void add_plan(CLI::App& app, Options& options, RawOptions& raw) {
  const char* group = "Plan";
  add_plan_options(app, PlanUser::trainer, group, raw.plan);
  app.add_flag("--plan-only", options.plan_only, "print what the plan would do, then stop");
  app.get_option("--plan-only")->group(group);
  app.add_flag("--verify", options.verify,
               "compare the bits of every recomputed tensor with those of its first making; slow")
      ->group(group);
  app.add_option("--plan-json", options.plan_file, "write the plan")->group(group)->type_name("FILE");
}

void add_checkpoints(CLI::App& app, Options& options) {
  const char* group = "Checkpoints";
  const bool gpt = options.program == Program::train_gpt;
  const auto some = quiet(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 40));
  app.add_option("--checkpoint", options.checkpoint_folder,
                 "save all that the run needs to go on to the same bits, in the background and at the end")
      ->group(group)
      ->type_name("DIR");
  app.add_option("--checkpoint-every", options.checkpoint_every, "steps from one checkpoint to the next")
      ->group(group)
      ->check(some)
      ->type_name("N");
  app.add_option("--keep", options.keep, "how many of the newest checkpoints stay")
      ->group(group)
      ->check(some)
      ->type_name("N");
  app.add_flag(
         "--keep-best", options.keep_best,
         gpt ? "keep the checkpoint with the least evaluation loss too, as DIR/best"
             : "keep the checkpoint with the least evaluation loss (of both tasks together) too, as DIR/best")
      ->group(group);
  app.add_flag("--checkpoint-blocking", options.checkpoint_blocking,
               "make steps wait for checkpoints; takes no copy of the state on the host")
      ->group(group);
  app.add_option("--resume", options.resume_from,
                 "go on from this checkpoint, or from the newest in --checkpoint DIR")
      ->group(group)
      ->expected(0, 1)
      ->type_name("[PATH]");
}

void add_output(CLI::App& app, Options& options, RawOptions& raw) {
  const char* group = "Output";
  app.add_option(
         "--log", options.log_file,
         "write one JSON object per step, or where FILE ends in .csv one row (of steps and evaluations "
         "alone)")
      ->group(group)
      ->type_name("FILE");
  app.add_option("--trace", options.trace_file,
                 "write the last step, planned and measured, for ui.perfetto.dev")
      ->group(group)
      ->type_name("FILE");
  app.add_option("--report", options.report_file,
                 "write one HTML page: loss, learning rate, norm and step time by step, and the plan")
      ->group(group)
      ->type_name("FILE");
  app.add_option("--weights", options.weights_file,
                 "write the final parameters: a line of JSON (names, shapes, offsets), then raw bytes")
      ->group(group)
      ->type_name("FILE");
  app.add_option("--export", options.export_folder,
                 "write the final model for Hugging Face into a new folder: safetensors and config.json")
      ->group(group)
      ->type_name("DIR");
  app.add_option("--export-type", raw.export_type,
                 "of the exported weights: as-read (the types of --init's files, the default with --init), "
                 "bf16, which "
                 "rounds, or f32, which keeps the master weights")
      ->group(group)
      ->check(quiet(CLI::IsMember({"as-read", "bf16", "f32"})))
      ->type_name("NAME");
}

void add_evaluation(CLI::App& app, Options& options, RawOptions& raw) {
  const char* group = "Evaluation";
  const bool gpt = options.program == Program::train_gpt;
  const auto some = quiet(CLI::Range(std::uint64_t{0}, std::uint64_t{1} << 40));
  app.add_option("--evaluate-every", options.evaluate_every,
                 gpt ? "steps from one evaluation to the next, and one at the end; 0: never, and all is "
                       "trained on"
                     : "steps from one evaluation of both tasks to the next, and one at the end; 0: never, "
                       "and all is trained on")
      ->group(group)
      ->check(some)
      ->type_name("N");
  app.add_option("--evaluation-share", options.evaluation_share,
                 "of the text: its tail, which is evaluated and not trained on")
      ->group(group)
      ->check(quiet(CLI::Range(0.0, 0.99)))
      ->type_name("X");
  app.add_option("--evaluation-data", options.evaluation_data,
                 gpt ? "evaluate this instead of the tail: a text, or token shards as those of --data"
                     : "evaluate this text instead of the tail")
      ->group(group)
      ->type_name(gpt ? "FILE|DIR" : "FILE");
  if (gpt)
    app.add_option(
           "--evaluate-on", raw.evaluate_on,
           "device: between steps, in memory that is free then, in the run's type; cpu: in f32, op by "
           "op; auto: the device, where it has room")
        ->group(group)
        ->check(quiet(CLI::IsMember({"auto", "device", "cpu"})))
        ->type_name("NAME");
  app.add_option("--patience", options.patience,
                 "end the training after N evaluations in a row without a new least loss; with --checkpoint "
                 "keep the best, as --keep-best does, and --export that one instead of the last step's")
      ->group(group)
      ->check(quiet(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 40)))
      ->default_str("")
      ->type_name("N");
  app.add_option("--evaluation-samples", options.evaluation_samples, "samples of it to look at, at most")
      ->group(group)
      ->check(quiet(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 30)))
      ->type_name("N");
}

void add_generation(CLI::App& app, Options& options, RawOptions& raw) {
  const char* group = "Generation";
  app.add_option("--generate", raw.prompt,
                 "write text that goes on with this one (or with the file's, as @FILE), instead of training: "
                 "from the model in --checkpoint DIR, --resume PATH or --init, with its --tokenizer")
      ->group(group)
      ->type_name("TEXT|@FILE");
  app.add_option("--generate-ids", raw.prompt_ids,
                 "the same for programs: go on with the token ids in FILE, or in standard input for -, and "
                 "write one id a line, until a stop token, which is not written")
      ->group(group)
      ->type_name("FILE|-");
  app.add_option(
         "--stop-ids", raw.stop_ids,
         "ids at which --generate-ids ends, as 1,2; none for no such id; without it those of --init's "
         "generation_config.json, or else of its config.json")
      ->group(group)
      ->type_name("IDS");
  app.add_option("--tokens", options.generated_tokens, "most tokens to generate")
      ->group(group)
      ->check(quiet(CLI::Range(std::uint64_t{0}, std::uint64_t{1} << 30)))
      ->type_name("N");
  app.add_option("--temperature", options.temperature,
                 "of generated text: 0 takes the likeliest token, 1 draws as the model sees them")
      ->group(group)
      ->check(quiet(CLI::Range(0.0, 1e3)))
      ->type_name("X");
  app.add_option("--sample", options.sample_tokens, "tokens of text to write after training")
      ->group(group)
      ->check(quiet(CLI::Range(std::uint64_t{0}, std::uint64_t{1} << 30)))
      ->type_name("N");
}

}  // namespace

void add_flags(CLI::App& app, Options& options, RawOptions& raw) {
  add_data(app, options);
  add_training(app, options, raw);
  add_model(app, options, raw);
  add_machine(app, options, raw);
  add_plan(app, options, raw);
  add_checkpoints(app, options);
  add_evaluation(app, options, raw);
  if (options.program == Program::train_gpt) add_generation(app, options, raw);
  add_output(app, options, raw);
}

}  // namespace stowage::samples
