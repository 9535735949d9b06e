// Measures what each technique of the placement solver buys: peaks over the lower bound without it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "tools/cli/buffers_csv.h"
#include "tools/cli/files.h"

namespace stowage {
namespace {

constexpr std::uintmax_t largest_csv = 64 << 20;

struct Case {
  const char* name;
  void (*change)(PlacementStrategies&);
};

constexpr Case cases[] = {
    {"all", [](PlacementStrategies&) {}},
    {"no squeeze", [](PlacementStrategies& s) { s.squeeze = false; }},
    {"no branch and bound", [](PlacementStrategies& s) { s.branch_and_bound = false; }},
    {"no best fit", [](PlacementStrategies& s) { s.best_fit = false; }},
    {"no squeaky wheel", [](PlacementStrategies& s) { s.squeaky_wheel = false; }},
    {"one greedy order", [](PlacementStrategies& s) { s.greedy_looks = 1; }},
    {"constant weights", [](PlacementStrategies& s) { s.squeeze_reluctance = 1; }},
    {"weights times 1.2", [](PlacementStrategies& s) { s.squeeze_reluctance = 1.2; }},
    {"one stage", [](PlacementStrategies& s) { s.squeeze_stages = {}; }},
    {"stages without sizes", [](PlacementStrategies& s) { s.squeeze_size_counts = 0; }},
    {"patience 20,000", [](PlacementStrategies& s) { s.squeeze_patience = 20'000; }},
};

struct Clock {
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
};

double ratio(const std::vector<PlacementItem>& items, const Case& each, double seconds) {
  PlacementOptions options;
  options.node_limit = std::numeric_limits<std::uint64_t>::max();
  each.change(options.strategies);
  const Clock clock;
  options.keep_going = [&](const PlacementProgress&) { return clock.seconds() < seconds; };
  const PlacementResult result = solve_placement(items, options);
  if (const std::string wrong = check_placement(items, result, 1); !wrong.empty())
    throw std::runtime_error(wrong);
  return static_cast<double>(result.peak) / static_cast<double>(std::max<Bytes>(1, result.lower_bound));
}

void print_header() {
  std::string names = "| input |", rule = "|---|";
  for (const Case& each : cases) {
    names += fmt::format(" {} |", each.name);
    rule += "---|";
  }
  fmt::print("{}\n{}\n", names, rule);
}

void print_row(const std::string& name, const std::vector<PlacementItem>& items, double seconds) {
  fmt::print("| {} |", name);
  for (const Case& each : cases) {
    fmt::print(" {:.3f} |", 100 * (ratio(items, each, seconds) - 1));
    std::fflush(stdout);
  }
  fmt::print("\n");
}

}  // namespace
}  // namespace stowage

int main(int argc, char** argv) {
  using namespace stowage;
  CLI::App app{"Percent above the lower bound, with techniques of the placement solver left out"};
  std::vector<std::string> files;
  double seconds = 10;
  app.add_option("FILE", files, "buffers as CSV, as `stowage place` takes them")->required();
  app.add_option("--seconds", seconds, "for each input and case")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  print_header();
  for (const std::string& file : files) {
    const Buffers buffers = parse_buffers(read_file(file, largest_csv, "a CSV file of buffers"), file);
    print_row(file.substr(file.rfind('/') + 1), buffers.items, seconds);
  }
}
