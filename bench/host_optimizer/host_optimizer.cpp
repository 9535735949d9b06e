// Times updates and memory patterns on demand. Prints a line of JSON for each Measurement, then an empty
// line. Then it reads numbers of measurements, one a line, and answers each with the seconds that the
// measurement took.
#include <fmt/core.h>

#include <sched.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <ctime>
#include <iostream>
#include <string>
#include <thread>

#include "bench/host_optimizer/measurement.h"
#include "kernels/cpu/adamw_simd.h"
#include "src/base/parallel_for.h"

namespace stowage::bench {

std::vector<int> thread_counts() {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  std::vector<int> counts;
  for (int threads = 1; threads < cores; threads *= 2) counts.push_back(threads);
  counts.push_back(cores);
  return counts;
}

namespace {

void run_on(const cpu_set_t& cores) { sched_setaffinity(0, sizeof(cores), &cores); }

cpu_set_t all_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  for (unsigned core = 0; core < std::thread::hardware_concurrency(); ++core) CPU_SET(core, &cores);
  return cores;
}

// Puts each thread of the loops on a core of its own. If another program keeps a core busy, a thread that is
// woken could otherwise run on the core of the thread that wakes it.
void spread_threads(int threads) {
  run_on(all_cores());
  if (threads == 1) return;
  std::atomic<int> here = 0;
  const auto begin = std::chrono::steady_clock::now();
  parallel_for(threads, 1, [&](std::int64_t, std::int64_t) {
    cpu_set_t core;
    CPU_ZERO(&core);
    CPU_SET(static_cast<std::size_t>(here++), &core);
    run_on(core);
    // A thread that comes back early would take another one's turn.
    while (here < threads && std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(100)) {
    }
  });
}

double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

struct Seconds {
  double clock, processors;
};

void prepare(const Measurement& measurement) {
  set_parallel_threads(0);
  cpu::use_instruction_set("");
  measurement.prepare();
  set_parallel_threads(measurement.threads);
  spread_threads(measurement.threads);
  cpu::use_instruction_set(measurement.instruction_set);
}

Seconds seconds_of(const Measurement& measurement) {
  prepare(measurement);
  measurement.run();  // warm-up: memory that was not used for seconds is slow at first
  prepare(measurement);
  const double processors = processor_seconds();
  const auto begin = std::chrono::steady_clock::now();
  measurement.run();
  return {std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(),
          processor_seconds() - processors};
}

void serve(const std::vector<Measurement>& measurements) {
  for (const Measurement& each : measurements) {
    fmt::print(
        R"({{"name": "{}", "type": "{}", "instruction_set": "{}", "threads": {}, "bytes": {}, "elements": {}}})"
        "\n",
        each.name, each.type, each.instruction_set, each.threads, each.bytes_per_element, each.elements);
  }
  fmt::print("\n");
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    const Seconds seconds = seconds_of(measurements.at(std::stoul(line)));
    fmt::print("{} {}\n", seconds.clock, seconds.processors);
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace stowage::bench

int main(int argc, char** argv) {
  CLI::App app("Times AdamW on the host beside patterns of memory.");
  std::int64_t count = 50'000'000;
  app.add_option("--count", count, "parameters");
  CLI11_PARSE(app, argc, argv);
  std::vector<stowage::bench::Measurement> measurements;
  stowage::bench::add_patterns(count, measurements);
  stowage::bench::add_updates(count, measurements);
  stowage::bench::add_compact_updates(count, measurements);
  stowage::bench::serve(measurements);
}
