// Writes traces to replay into a folder: the generated ones as CSV, and histories of a GPT's training steps.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "bench/replay/recorded_steps.h"
#include "src/history/histories.h"
#include "stowage/models.h"
#include "tools/replay/generated_traces.h"

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

// Returns the step that train_gpt builds with --layers 12 --width 512 --heads 8.
Graph step_of(std::int64_t batch) {
  GraphBuilder builder;
  ModelConfig config{.layers = 12, .width = 512, .heads = 8};
  config.batch = batch;
  const BuiltModel model = gpt(builder, config);
  return builder.finish(model.loss, AdamW{});
}

std::string history_of(const std::vector<std::int64_t>& batches) {
  std::vector<Graph> steps;
  for (const std::int64_t batch : batches) steps.push_back(step_of(batch));
  return bench::record_steps(steps);
}

// Returns the history without marks of where iterations begin, as of a program that does not say so.
std::string unmarked(const std::string& history) {
  AllocationTrace trace = parse_history(history, "history");
  trace.iterations.clear();
  return to_history(trace);
}

void write_gpt(const std::filesystem::path& folder) {
  const std::string same = history_of(std::vector<std::int64_t>(12, 16));
  write(folder / "gpt-batch-16.jsonl", same);
  write(folder / "gpt-batch-16-unmarked.jsonl", unmarked(same));
  // Batch sizes that rise, fall, and go back and forth.
  const std::string changing = history_of({16, 16, 12, 16, 20, 16, 12, 20, 16, 24, 12, 16, 20, 24, 16, 12});
  write(folder / "gpt-batches-changing.jsonl", changing);
  write(folder / "gpt-batches-changing-unmarked.jsonl", unmarked(changing));
  write(folder / "gpt-batches-rising.jsonl", history_of({4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26}));
  write(folder / "gpt-batches-falling.jsonl", history_of({26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4}));
  write(folder / "gpt-batches-last-smaller.jsonl", history_of({16, 16, 16, 16, 6, 16, 16, 16, 16, 6}));
}

constexpr std::size_t iterations = 3;
constexpr std::uint64_t seeds_of_programs = 4;

// Writes the generated lifetimes with other sizes. They show what granules of one size cost programs with
// several sizes.
void write_scaled(const std::filesystem::path& folder, const std::string& kind, Bytes times, Bytes parts) {
  constexpr std::uint64_t seeds = 20;
  for (std::uint64_t i = 0; i < seeds; ++i) {
    std::vector<PlacementItem> items = generated_lifetimes(first_generated_seed + i);
    for (PlacementItem& item : items) item.bytes = std::max<Bytes>(1, item.bytes * times / parts);
    write(folder / fmt::format("{}-{}.csv", kind, first_generated_seed + i), csv_of(items));
  }
}

void write_programs(const std::filesystem::path& folder, const std::string& kind,
                    std::vector<NamedTrace> (*make)(std::uint64_t)) {
  for (std::uint64_t i = 0; i < seeds_of_programs; ++i)
    for (const NamedTrace& program : make(first_generated_seed + i))
      write(folder / fmt::format("{}-{}-{}.jsonl", kind, program.name, first_generated_seed + i),
            to_history(repeated(program.trace, iterations)));
}

}  // namespace

int main(int count, char** arguments) {
  CLI::App app{"Writes traces for bench/replay/run"};
  std::filesystem::path folder;
  app.add_option("FOLDER", folder, "where to; made where it is not there")->required();
  CLI11_PARSE(app, count, arguments);
  try {
    std::filesystem::create_directories(folder);
    for (std::uint64_t i = 0; i < generated_traces; ++i)
      write(folder / fmt::format("generated-{}.csv", first_generated_seed + i),
            csv_of(generated_lifetimes(first_generated_seed + i)));
    write_scaled(folder, "eighth", 1, 8);
    write_scaled(folder, "half", 1, 2);
    write_scaled(folder, "eightfold", 8, 1);
    write_programs(folder, "program", generated_programs);
    write_programs(folder, "pattern", patterned_programs);
    write_programs(folder, "large", large_queues);
    write_programs(folder, "hostile", hostile_programs);
    write_gpt(folder);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "make_traces: %s\n", error.what());
    return 1;
  }
  return 0;
}
