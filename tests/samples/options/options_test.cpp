#include "samples/options/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "stowage/error.h"

namespace stowage::samples {
namespace {

CommandLine parse(std::vector<const char*> flags) {
  flags.insert(flags.begin(), {"train_gpt", "--data", "text"});
  return parse_command_line(static_cast<int>(flags.size()), flags.data());
}

// One line that contains each of `parts`.
void expect_refused(std::vector<const char*> flags, const std::vector<std::string>& parts) {
  try {
    parse(std::move(flags));
    ADD_FAILURE() << "accepted; wanted a complaint about " << parts.front();
  } catch (const InvalidInput& error) {
    const std::string message = error.what();
    for (const std::string& part : parts) EXPECT_THAT(message, testing::HasSubstr(part));
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

TEST(Options, Defaults) {
  const Options options = parse({}).options;
  EXPECT_EQ(options.data, "text");
  EXPECT_EQ(options.model.layers, 6);
  EXPECT_EQ(options.model.width, 384);
  EXPECT_EQ(options.model.heads, 6);
  EXPECT_EQ(options.model.sequence, 256);
  EXPECT_EQ(options.model.batch, 8);
  EXPECT_EQ(options.model.dropout, 0);
  EXPECT_EQ(options.learning_rate, 1e-3);
  EXPECT_EQ(options.weight_decay, 0.1);
  EXPECT_EQ(options.decayed, DecayedParameters::matrices);
  EXPECT_EQ(options.descent, Descent::cosine);
  EXPECT_EQ(options.final_share, 0.1);
  EXPECT_EQ(options.clip, 1.0);
  EXPECT_EQ(options.seed, 1U);
  EXPECT_EQ(options.budget.device, unlimited);
  EXPECT_EQ(options.budget.host, unlimited);
  EXPECT_EQ(options.plan.policy, Policy::automatic);
  EXPECT_EQ(options.plan.bucket_bytes, 0U);
  EXPECT_TRUE(options.link.throttled);
  EXPECT_EQ(options.link.bytes_per_second, 8e9);
  EXPECT_EQ(options.link_both_bytes_per_second, as_alone);
  EXPECT_FALSE(options.plan_only);
  EXPECT_FALSE(options.verify);
}

TEST(Options, EveryFlag) {
  const Options options = parse({"--layers",
                                 "2",
                                 "--width",
                                 "64",
                                 "--heads",
                                 "2",
                                 "--sequence",
                                 "32",
                                 "--batch",
                                 "3",
                                 "--micro-batches",
                                 "3",
                                 "--gradient-groups",
                                 "1",
                                 "--steps",
                                 "20",
                                 "--learning-rate",
                                 "0.5",
                                 "--warmup",
                                 "4",
                                 "--weight-decay",
                                 "0.25",
                                 "--schedule",
                                 "linear",
                                 "--final-share",
                                 "0.5",
                                 "--beta1",
                                 "0.5",
                                 "--beta2",
                                 "0.75",
                                 "--epsilon",
                                 "1e-4",
                                 "--decay",
                                 "all",
                                 "--clip",
                                 "0",
                                 "--dropout",
                                 "0.125",
                                 "--seed",
                                 "18446744073709551615",
                                 "--device",
                                 "cuda:1",
                                 "--machine",
                                 "m",
                                 "--type",
                                 "bf16",
                                 "--device-memory",
                                 "1234567",
                                 "--host-memory",
                                 "1.5G",
                                 "--pageable",
                                 "never",
                                 "--bucket-size",
                                 "64KiB",
                                 "--threads",
                                 "2",
                                 "--link-both-bandwidth",
                                 "400MB/s",
                                 "--link-bandwidth",
                                 "500MB/s",
                                 "--policy",
                                 "none",
                                 "--plan-only",
                                 "--verify",
                                 "--plan-json",
                                 "p",
                                 "--log",
                                 "l",
                                 "--trace",
                                 "t",
                                 "--report",
                                 "r",
                                 "--weights",
                                 "w",
                                 "--sample",
                                 "99"})
                              .options;
  EXPECT_EQ(options.model.layers, 2);
  EXPECT_EQ(options.model.width, 64);
  EXPECT_EQ(options.model.heads, 2);
  EXPECT_EQ(options.model.sequence, 32);
  EXPECT_EQ(options.model.batch, 3);
  EXPECT_EQ(options.model.micro_batches, 3);
  EXPECT_EQ(options.steps, 20U);
  EXPECT_EQ(options.learning_rate, 0.5);
  EXPECT_EQ(options.warmup, 4U);
  EXPECT_EQ(options.weight_decay, 0.25);
  EXPECT_EQ(options.beta1, 0.5);
  EXPECT_EQ(options.beta2, 0.75);
  EXPECT_EQ(options.epsilon, 1e-4);
  EXPECT_EQ(options.decayed, DecayedParameters::all);
  EXPECT_EQ(options.descent, Descent::linear);
  EXPECT_EQ(options.final_share, 0.5);
  EXPECT_EQ(options.clip, 0);
  EXPECT_EQ(options.model.dropout, 0.125);
  EXPECT_EQ(options.seed, 18446744073709551615U);
  EXPECT_EQ(options.device, "cuda:1");
  EXPECT_EQ(options.machine, "m");
  EXPECT_EQ(options.type, DataType::bf16);
  EXPECT_EQ(options.budget.device, 1234567U);
  EXPECT_EQ(options.budget.host, 1536_MiB);
  EXPECT_FALSE(options.pageable_fallback);
  EXPECT_EQ(options.plan.bucket_bytes, 64_KiB);
  EXPECT_EQ(options.threads, 2);
  EXPECT_EQ(options.link.bytes_per_second, 5e8);
  EXPECT_EQ(options.link_both_bytes_per_second, 4e8);
  EXPECT_EQ(options.plan.policy, Policy::none);
  EXPECT_TRUE(options.plan_only);
  EXPECT_TRUE(options.verify);
  EXPECT_EQ(options.plan_file, "p");
  EXPECT_EQ(options.log_file, "l");
  EXPECT_EQ(options.trace_file, "t");
  EXPECT_EQ(options.report_file, "r");
  EXPECT_EQ(options.weights_file, "w");
  EXPECT_EQ(options.sample_tokens, 99U);
}

TEST(Options, CodesOfActivations) {
  EXPECT_EQ(parse({}).options.model.code_activations, std::nullopt);
  EXPECT_EQ(parse({"--code-activations", "off"}).options.model.code_activations, std::nullopt);
  EXPECT_EQ(parse({"--code-activations", "8"}).options.model.code_activations, CodeBits::eight);
  EXPECT_EQ(parse({"--code-activations", "4"}).options.model.code_activations, CodeBits::four);
}

TEST(Options, Moments) {
  EXPECT_EQ(optimizer_of(parse({}).options).moments, Moments::f32);
  EXPECT_EQ(optimizer_of(parse({"--moments", "bf16"}).options).moments, Moments::bf16);
  EXPECT_EQ(optimizer_of(parse({"--moments", "8bit"}).options).moments, Moments::eight_bit);
}

TEST(Options, Checkpoints) {
  const Options none = parse({}).options;
  EXPECT_EQ(none.checkpoint_folder, "");
  EXPECT_EQ(none.checkpoint_every, 100U);
  EXPECT_EQ(none.keep, 3U);
  EXPECT_FALSE(none.checkpoint_blocking);
  EXPECT_FALSE(none.resume);
  const Options all = parse({"--checkpoint", "d", "--resume", "--checkpoint-every", "7", "--keep", "2",
                             "--checkpoint-blocking"})
                          .options;
  EXPECT_EQ(all.checkpoint_folder, "d");
  EXPECT_EQ(all.checkpoint_every, 7U);
  EXPECT_EQ(all.keep, 2U);
  EXPECT_TRUE(all.checkpoint_blocking);
  EXPECT_TRUE(all.resume);
  EXPECT_EQ(all.resume_from, "");
  EXPECT_EQ(parse({"--resume", "p"}).options.resume_from, "p");
  EXPECT_TRUE(parse({"--resume=p"}).options.resume);
}

TEST(Options, RefusalsNameTheFlag) {
  for (const char* flag :
       {"--log", "--trace", "--report", "--weights", "--export", "--plan-json", "--checkpoint"})
    expect_refused({"--data", "x", flag, ""}, {std::string(flag) + ": the path is empty"});
  for (const char* flag : {"--weights", "--export", "--checkpoint"})
    expect_refused({"--data", "x", flag, "-"},
                   {std::string(flag) + " -: the standard output takes text alone"});
  expect_refused({"--data", "x", "--log", "y", "--report", "./y"}, {"--report ./y: --log has the same path"});
  expect_refused({"--data", "x", "--log", "-", "--plan-json", "-"},
                 {"--plan-json -: --log has the same path"});
  parse({"--data", "x", "--log", "/dev/null", "--plan-json", "/dev/null"});
  expect_refused({"--layers", "abc"}, {"--layers", "abc"});
  expect_refused({"--layers", "0"}, {"--layers", "0"});
  expect_refused({"--batch", "-1"}, {"--batch", "-1"});
  expect_refused({"--data", "x", "--batch", "6", "--micro-batches", "4"}, {"--micro-batches 4", "--batch 6"});
  expect_refused({"--data", "x", "--micro-batches", "auto"},
                 {"--micro-batches: auto is for `stowage plan` alone, which says the number to give here"});
  for (const char* groups : {"3", "4", "12"})
    expect_refused({"--data", "x", "--batch", "6", "--micro-batches", "6", "--gradient-groups", groups},
                   {"--gradient-groups " + std::string(groups), "--micro-batches 6: choose one, at most 2"});
  expect_refused({"--data", "x", "--gradient-groups", "0"}, {"--gradient-groups"});
  expect_refused({"--steps", "99999999999999999999"}, {"--steps", "99999999999999999999"});
  expect_refused({"--learning-rate", "nan"}, {"--learning-rate", "nan"});
  expect_refused({"--learning-rate", "-1"}, {"--learning-rate", "-1"});
  expect_refused({"--dropout", "1.5"}, {"--dropout", "1.5"});
  for (const char* share : {"0", "1.5", "nan", "-0.5"})
    expect_refused({"--data", "x", "--keep-tokens", share},
                   {"--keep-tokens " + std::string(share) + ": give a"});
  expect_refused({"--keep-tokens", "half"}, {"--keep-tokens", "half"});
  expect_refused({"--type", "f16"}, {"--type", "f16", "bf16", "fp16"});
  expect_refused({"--data", "x", "--type", "fp16", "--loss-scale", "3"}, {"--loss-scale 3", "power of two"});
  expect_refused({"--data", "x", "--type", "fp16", "--loss-scale", "0"}, {"--loss-scale 0", "from 1 to"});
  expect_refused({"--data", "x", "--loss-scale", "2"}, {"--loss-scale", "--type fp16"});
  expect_refused({"--policy", "fast"}, {"--policy", "fast", "none"});
  expect_refused({"--device-memory", "6GiBB"}, {"--device-memory: ", "\"6GiBB\""});
  expect_refused({"--host-memory", "-1"}, {"--host-memory: ", "\"-1\""});
  expect_refused({"--bucket-size", "0"}, {"--bucket-size: ", "0"});
  expect_refused({"--link-bandwidth", "fast"}, {"--link-bandwidth: ", "\"fast\"", "8GB/s"});
  expect_refused({"--link-both-bandwidth", "0"}, {"--link-both-bandwidth: ", "\"0\""});
  expect_refused({"--link-bandwidth", "0"}, {"--link-bandwidth: ", "\"0\""});
  expect_refused({"--frobnicate"}, {"--frobnicate", "--help"});
  expect_refused({"--layers"}, {"--layers"});
  expect_refused({"--seed", "-1"}, {"--seed", "-1"});
}

TEST(Options, WidthMustBeDivisibleByHeads) {
  expect_refused({"--width", "100", "--heads", "6"}, {"--width 100", "--heads 6", "102"});
}

TEST(Options, TheLastOfARepeatedFlagCounts) {
  const Options options =
      parse({"--layers", "2", "--device-memory", "1M", "--layers", "3", "--device-memory", "2M"}).options;
  EXPECT_EQ(options.model.layers, 3);
  EXPECT_EQ(options.budget.device, 2_MiB);
}

TEST(Options, DataIsRequired) {
  const char* only_name = "train_gpt";
  EXPECT_THROW(parse_command_line(1, &only_name), InvalidInput);
}

TEST(Options, HelpListsEveryFlag) {
  const std::string help = parse({"--help"}).help;
  for (const char* flag : {"--data",
                           "--layers",
                           "--width",
                           "--heads",
                           "--sequence",
                           "--batch",
                           "--steps",
                           "--learning-rate",
                           "--warmup",
                           "--weight-decay",
                           "--decay ",
                           "--beta1",
                           "--beta2",
                           "--epsilon",
                           "--schedule",
                           "--final-share",
                           "--clip",
                           "--dropout",
                           "--seed",
                           "--device ",
                           "--device-memory",
                           "--machine",
                           "--type",
                           "--host-memory",
                           "--pageable",
                           "--bucket-size",
                           "--threads",
                           "--link-bandwidth",
                           "--policy",
                           "--plan-only",
                           "--plan-json",
                           "--log",
                           "--trace",
                           "--weights",
                           "--sample",
                           "--verify",
                           "--micro-batches",
                           "--gradient-groups",
                           "--checkpoint ",
                           "--checkpoint-every",
                           "--checkpoint-blocking",
                           "--keep ",
                           "--keep-best",
                           "--epochs",
                           "--resume",
                           "--link-both-bandwidth"}) {
    EXPECT_THAT(help, testing::HasSubstr(flag));
  }
}

TEST(Options, OfABert) {
  const std::vector<const char*> flags = {"train_bert", "--data", "text", "--vocabulary", "400"};
  const Options options =
      parse_command_line(static_cast<int>(flags.size()), flags.data(), Program::train_bert).options;
  EXPECT_EQ(options.program, Program::train_bert);
  EXPECT_EQ(options.family, &bert_family);
  EXPECT_EQ(options.learned_vocabulary, 400);
  EXPECT_EQ(options.evaluate_every, 0U);  // nothing is held out
  EXPECT_TRUE(options.model.pretraining);
  EXPECT_EQ(options.model.epsilon, 1e-12);
  expect_refused({"--vocabulary", "400"}, {"--vocabulary", "train_gpt --help"});
}

// Of GPT-3 and nanoGPT, and of google-research/bert's optimization.py.
TEST(Options, TheOptimizerIsThatOfTheModelsReference) {
  const AdamW gpt = optimizer_of(parse({}).options);
  EXPECT_EQ(gpt.beta1, 0.9);
  EXPECT_EQ(gpt.beta2, 0.95);
  EXPECT_EQ(gpt.epsilon, 1e-8);
  EXPECT_EQ(gpt.weight_decay, 0.1);
  const std::vector<const char*> flags = {"train_bert", "--data", "text", "--beta1", "0.8"};
  const AdamW bert = optimizer_of(
      parse_command_line(static_cast<int>(flags.size()), flags.data(), Program::train_bert).options);
  EXPECT_EQ(bert.beta1, 0.8);
  EXPECT_EQ(bert.beta2, 0.999);
  EXPECT_EQ(bert.epsilon, 1e-6);
  EXPECT_EQ(bert.weight_decay, 0.01);
  for (const char* flag : {"--beta1", "--beta2"}) {
    for (const char* value : {"1", "-0.1", "nan", "x"}) expect_refused({flag, value}, {flag});
  }
  for (const char* value : {"0", "-1e-8", "nan", "2"}) expect_refused({"--epsilon", value}, {"--epsilon"});
}

TEST(Options, EvaluationIsOffUnlessAskedFor) {
  EXPECT_EQ(parse({}).options.evaluate_every, 0U);
  const Options options = parse({"--evaluate-every", "9", "--evaluation-share", "0.25", "--evaluation-data",
                                 "e", "--evaluation-samples", "3", "--tokenizer", "t"})
                              .options;
  EXPECT_EQ(options.evaluate_every, 9U);
  EXPECT_EQ(options.evaluation_share, 0.25);
  EXPECT_EQ(options.evaluation_data, "e");
  EXPECT_EQ(options.evaluation_samples, 3U);
  EXPECT_EQ(options.tokenizer, "t");
  expect_refused({"--evaluation-share", "1"}, {"--evaluation-share"});
  expect_refused({"--evaluation-share", "nan"}, {"--evaluation-share"});
  expect_refused({"--evaluation-samples", "0"}, {"--evaluation-samples"});
}

// Any of its flags asks for it where no step is made.
TEST(Options, WithoutStepsThereIsOneEvaluation) {
  EXPECT_EQ(parse({"--steps", "0"}).options.evaluate_every, 0U);
  EXPECT_TRUE(parse({"--steps", "0"}).options.trains_nothing);
  EXPECT_FALSE(parse({}).options.trains_nothing);
  EXPECT_GT(parse({"--steps", "0", "--evaluation-share", "0.5"}).options.evaluate_every, 0U);
  EXPECT_GT(parse({"--steps", "0", "--evaluation-samples", "9"}).options.evaluate_every, 0U);
  EXPECT_GT(parse({"--steps", "0", "--evaluation-data", "e"}).options.evaluate_every, 0U);
  EXPECT_EQ(parse({"--steps", "0", "--evaluation-data", "e", "--evaluate-every", "0"}).options.evaluate_every,
            0U);
  expect_refused({"--evaluation-data", "e"}, {"--evaluation-data", "--evaluate-every"});
}

TEST(Options, EpochsAreInsteadOfSteps) {
  EXPECT_FALSE(parse({}).options.epochs.has_value());
  EXPECT_EQ(parse({"--epochs", "2.5"}).options.epochs, 2.5);
  expect_refused({"--epochs", "1", "--steps", "7"}, {"--epochs and --steps", "give one"});
  for (const char* bad : {"0", "-1", "nan", "inf", "x"}) expect_refused({"--epochs", bad}, {"--epochs"});
}

TEST(Options, TheBestIsKeptOfCheckpointsAndByEvaluations) {
  EXPECT_FALSE(parse({}).options.keep_best);
  EXPECT_TRUE(parse({"--keep-best", "--checkpoint", "c", "--evaluate-every", "5"}).options.keep_best);
  expect_refused({"--keep-best", "--evaluate-every", "5"}, {"--keep-best", "--checkpoint"});
  expect_refused({"--keep-best", "--checkpoint", "c"}, {"--keep-best", "--evaluate-every"});
  expect_refused({"--keep-best", "--checkpoint", "c", "--evaluate-every", "0"},
                 {"--keep-best", "--evaluate-every"});
}

TEST(Options, PatienceNeedsEvaluationsAndKeepsTheBest) {
  EXPECT_EQ(parse({}).options.patience, 0U);
  const Options alone = parse({"--patience", "3", "--evaluate-every", "5"}).options;
  EXPECT_EQ(alone.patience, 3U);
  EXPECT_FALSE(alone.keep_best);
  EXPECT_TRUE(parse({"--patience", "3", "--evaluate-every", "5", "--checkpoint", "c"}).options.keep_best);
  expect_refused({"--patience", "0", "--evaluate-every", "5"}, {"--patience"});
  expect_refused({"--patience", "3"}, {"--patience", "--evaluate-every"});
  expect_refused({"--patience", "3", "--evaluate-every", "0"}, {"--patience", "--evaluate-every"});
}

TEST(Options, GenerationNeedsAModelAndNoData) {
  const std::vector<const char*> flags = {
      "train_gpt", "--generate", "Once", "--checkpoint", "c", "--temperature", "0.5", "--tokens", "7"};
  const Options options = parse_command_line(static_cast<int>(flags.size()), flags.data()).options;
  EXPECT_EQ(options.generate, "Once");
  EXPECT_EQ(options.temperature, 0.5);
  EXPECT_EQ(options.generated_tokens, 7U);
  EXPECT_FALSE(parse({}).options.generate.has_value());
  expect_refused({"--generate", "x"}, {"--generate", "which model"});
  expect_refused({"--generate", "@no/such/file", "--checkpoint", "c"}, {"--generate no/such/file"});
}

TEST(Options, HelpHasTheFlagsOfItsProgramInGroups) {
  const auto help = [](Program program) {
    const std::vector<const char*> flags = {"program", "--help"};
    return parse_command_line(2, flags.data(), program).help;
  };
  for (const Program program : {Program::train_gpt, Program::train_bert}) {
    for (const char* part : {"Data:", "Training:", "Model:", "Machine:", "Plan:", "Checkpoints:",
                             "Evaluation:", "Output:", "Examples:", "Exit code:", program_name(program)})
      EXPECT_THAT(help(program), testing::HasSubstr(part));
  }
  EXPECT_THAT(help(Program::train_gpt), testing::HasSubstr("--generate"));
  EXPECT_THAT(help(Program::train_bert), testing::Not(testing::HasSubstr("--generate")));
  EXPECT_THAT(help(Program::train_bert), testing::HasSubstr("--vocabulary"));
}

TEST(Options, ProcessesAreDevices) {
  const auto parse_for = [](int processes, std::vector<const char*> flags) {
    flags.insert(flags.begin(), {"train_gpt", "--data", "text"});
    return parse_command_line(static_cast<int>(flags.size()), flags.data(), Program::train_gpt, processes)
        .options;
  };
  const auto refusal = [&](int processes, const std::vector<const char*>& flags) -> std::string {
    try {
      parse_for(processes, flags);
    } catch (const InvalidInput& error) {
      return error.what();
    }
    return "accepted";
  };
  const Options options = parse_for(4, {});
  EXPECT_EQ(options.devices, 4);
  EXPECT_EQ(options.processes, 4);
  EXPECT_EQ(options.device, "auto");
  EXPECT_EQ(options.model.gradient_groups, 4);
  EXPECT_EQ(parse_for(4, {"--devices", "4"}).devices, 4);
  EXPECT_EQ(parse_for(1, {"--devices", "4"}).processes, 1);
  EXPECT_THAT(refusal(4, {"--devices", "2"}), testing::HasSubstr("--devices 2 with 4 processes"));
  EXPECT_THAT(refusal(3, {}), testing::HasSubstr("a launch of 3 processes: that is no power of two"));
}

}  // namespace
}  // namespace stowage::samples
