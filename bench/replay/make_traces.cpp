// Writes traces to replay into a folder: the generated ones as CSV, and histories of a GPT's training steps.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "src/history/history_json.h"
#include "src/replay/generated_traces.h"
#include "src/replay/graph_trace.h"
#include "stowage/models.h"

namespace {

using namespace stowage;

void write(const std::filesystem::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  if (!file.flush()) throw std::runtime_error("cannot write " + path.string());
}

std::string csv_of(const std::vector<PlacementItem>& items) {
  std::string text = "id,lower,upper,size\n";
  for (std::size_t i = 0; i < items.size(); ++i)
    text += fmt::format("{},{},{},{}\n", i, items[i].first, items[i].last, items[i].bytes);
  return text;
}

// As train_gpt builds it with --layers 12 --width 512 --heads 8.
Graph step_of(std::int64_t batch) {
  GraphBuilder builder;
  GptConfig config{.layers = 12, .width = 512, .heads = 8};
  config.batch = batch;
  const Gpt model = gpt(builder, config);
  return builder.finish(model.loss, AdamW{});
}

std::string history_of(const std::vector<std::int64_t>& batches, bool marked) {
  std::vector<Graph> steps;
  for (const std::int64_t batch : batches) steps.push_back(step_of(batch));
  AllocationTrace trace = trace_of_steps(steps);
  if (!marked) trace.iterations.clear();
  return to_history(trace);
}

}  // namespace

int main(int count, char** arguments) {
  CLI::App app{"Writes traces for bench/replay/run"};
  std::filesystem::path folder;
  app.add_option("FOLDER", folder, "where to; made where it is not there")->required();
  CLI11_PARSE(app, count, arguments);
  try {
    std::filesystem::create_directories(folder);
    for (std::uint64_t seed = 1; seed <= generated_traces; ++seed)
      write(folder / fmt::format("generated-{:02}.csv", seed), csv_of(generated_lifetimes(seed)));
    write(folder / "gpt-batch-16.jsonl", history_of(std::vector<std::int64_t>(12, 16), true));
    write(folder / "gpt-batch-16-unmarked.jsonl", history_of(std::vector<std::int64_t>(12, 16), false));
    // Rising, falling, and back and forth.
    write(folder / "gpt-batches-rising.jsonl",
          history_of({4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26}, true));
    write(folder / "gpt-batches-changing.jsonl",
          history_of({16, 16, 12, 16, 20, 16, 12, 20, 16, 24, 12, 16, 20, 24, 16, 12}, true));
    write(folder / "gpt-batches-last-smaller.jsonl",
          history_of({16, 16, 16, 16, 6, 16, 16, 16, 16, 6}, true));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "make_traces: %s\n", error.what());
    return 1;
  }
  return 0;
}
