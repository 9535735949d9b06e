// train_shape: trains a model of a given shape on random tokens, for gpu_check.py.
//
// Exit codes: 0 done, 3 no plan fits, 2 bad input, 1 anything else.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "bench/gpu_check/run_shape.h"
#include "stowage/error.h"
#include "stowage/moments.h"

namespace {

using stowage::bench::RunOptions;

struct Words {
  std::string type = "f32", moments = "f32", memory = "unlimited", host_memory = "unlimited", bucket = "auto",
              policy = "auto", link = "8GB";
};

void add_shape(CLI::App& app, stowage::bench::Shape& shape, Words& words) {
  app.add_option("--model", shape.model, "gpt or bert")->check(CLI::IsMember({"gpt", "bert"}));
  const auto size = CLI::Range(std::int64_t{1}, std::int64_t{1} << 24);
  app.add_option("--layers", shape.layers)->check(size);
  app.add_option("--width", shape.width)->check(size);
  app.add_option("--heads", shape.heads)->check(size);
  app.add_option("--vocabulary", shape.vocabulary)->check(size);
  app.add_option("--sequence", shape.sequence)->check(size);
  app.add_option("--batch", shape.batch)->check(size);
  app.add_option("--head-tokens", shape.head_tokens)->check(size);
  app.add_option("--type", words.type, "f32 or bf16")->check(CLI::IsMember({"f32", "bf16"}));
  app.add_option("--moments", words.moments, "f32, bf16 or 8bit")
      ->check(CLI::IsMember({"f32", "bf16", "8bit"}));
}

void add_run(CLI::App& app, RunOptions& options, Words& words) {
  app.add_option("--device", options.device, "auto, cuda, cuda:N or simulated");
  app.add_option("--link", words.link, "bytes per second of the simulated device's link, each way");
  app.add_option("--machine", options.machine_file, "as stowage calibrate wrote it");
  app.add_option("--device-memory", words.memory, "SIZE or unlimited");
  app.add_option("--host-memory", words.host_memory, "host bytes for what is offloaded: SIZE or unlimited");
  app.add_option("--policy", words.policy, "auto or none")->check(CLI::IsMember({"auto", "none"}));
  app.add_option("--bucket-size", words.bucket, "SIZE or auto");
  app.add_option("--steps", options.steps)->check(CLI::Range(std::uint64_t{1}, std::uint64_t{100'000}));
  app.add_option("--seed", options.seed);
  app.add_option("--host-elements", options.host_elements,
                 "time AdamW on so many elements in host memory, before and after the steps")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 32));
  app.add_flag("--replay-copies", options.replay_copies, "then time the plan's copies on an idle link");
  app.add_option("--profile-steps", options.profile_steps,
                 "make so many again, and tell where the last one's time went");
  app.add_option("--timeline", options.timeline_file,
                 "write when each instruction was planned and ran, as CSV");
  app.add_flag("--plan-only", options.plan_only, "print the setup and stop");
}

void understand(const Words& words, RunOptions& options) {
  options.shape.type = words.type == "bf16" ? stowage::DataType::bf16 : stowage::DataType::f32;
  options.shape.moments = stowage::moments_from(words.moments).value();
  if (words.memory != "unlimited") options.device_memory = stowage::parse_bytes(words.memory);
  if (words.host_memory != "unlimited") options.host_memory = stowage::parse_bytes(words.host_memory);
  if (words.bucket != "auto") options.plan.bucket_bytes = stowage::parse_bytes(words.bucket);
  if (words.policy == "none") options.plan.policy = stowage::Policy::none;
  const stowage::Bytes rate = stowage::parse_bytes(words.link);
  if (rate == 0) throw stowage::InvalidInput("--link 0 moves nothing; give bytes per second, such as 8GB");
  options.link.bytes_per_second = static_cast<double>(rate);
}

int run(int count, char** arguments) {
  CLI::App app{"Trains a model of a given shape on random tokens; prints lines of JSON", "train_shape"};
  RunOptions options;
  Words words;
  add_shape(app, options.shape, words);
  add_run(app, options, words);
  try {
    app.parse(count, arguments);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  understand(words, options);
  return stowage::bench::run(options, [](const std::string& line) {
    std::puts(line.c_str());
    std::fflush(stdout);
  });
}

}  // namespace

int main(int count, char** arguments) {
  try {
    return run(count, arguments);
  } catch (const stowage::InvalidInput& error) {
    std::fprintf(stderr, "train_shape: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "train_shape: %s\n", error.what());
    return 1;
  }
}
