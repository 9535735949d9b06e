// Prints docs/parallel.md's tables of Megatron-LM's published rows beside the cost models.
//
// usage: parallel_megatron FOLDER  (with table1.csv and table2.csv)
#include <fmt/format.h>

#include <exception>

#include "tests/support/megatron_tables.h"

namespace {

using namespace stowage;
using namespace stowage::testing;

constexpr double a100_memory = 80e9;

std::string way_text(const MegatronRow& row, const MegatronWay& way) {
  return fmt::format("{} | {} | {} | {} | {}", way.stages, parts_of(row, way), way.split, way.micro_samples,
                     way.virtual_stages);
}

void print_rows(const std::vector<MegatronRow>& rows, const MegatronConstants& constants) {
  fmt::print("| model | devices | step published, s | formula, s | TFLOP/s published | formula | ratio |\n");
  fmt::print("|---|---|---|---|---|---|---|\n");
  for (const MegatronRow& row : rows) {
    const double seconds = megatron_seconds(row, row.way, constants);
    const double teraflops = teraflops_of(row, seconds);
    fmt::print("| {} | {} | {:.2f} | {:.2f} | {:.0f} | {:.1f} | {:.3f} |\n", row.name, row.devices,
               teraflops_of(row, 1) / row.teraflops, seconds, row.teraflops, teraflops,
               teraflops / row.teraflops);
  }
  fmt::print("\n");
}

void print_choices(const std::vector<MegatronRow>& rows, const MegatronConstants& constants) {
  fmt::print("| model | devices | | p | d | t | b | v | GB | formula, s | of published |\n");
  fmt::print("|---|---|---|---|---|---|---|---|---|---|---|\n");
  for (const MegatronRow& row : rows) {
    const double published = megatron_seconds(row, row.way, constants);
    const auto print_way = [&](const char* who, const MegatronWay& way, const char* name, int devices) {
      const double seconds = megatron_seconds(row, way, constants);
      fmt::print("| {} | {} | {} | {} | {:.0f} | {:.2f} | {:.3f} |\n", name,
                 devices > 0 ? std::to_string(devices) : "", who, way_text(row, way),
                 megatron_bytes(row, way) / 1e9, seconds, seconds / published);
    };
    print_way("published", row.way, row.name.c_str(), row.devices);
    if (const auto best = best_megatron_way(row, constants, a100_memory)) print_way("chosen", *best, "", 0);
  }
  fmt::print("\n");
}

void print_shares(const std::vector<MegatronRow>& rows, const MegatronConstants& constants) {
  fmt::print(
      "| model | devices | published | work alone | flat, after the work | flat, beside it | two levels, "
      "after | two levels, beside |\n");
  fmt::print("|---|---|---|---|---|---|---|---|\n");
  for (const MegatronRow& row : rows) {
    const SharesSeconds seconds = shares_seconds(row, constants);
    const auto figure = [&](double step) { return teraflops_of(row, step); };
    fmt::print("| {} | {} | {:.0f} | {:.0f} | {:.0f} | {:.0f} | {:.0f} | {:.0f} |\n", row.name, row.devices,
               row.teraflops, figure(seconds.compute), figure(seconds.compute + seconds.flat),
               figure(std::max(seconds.compute, seconds.flat)), figure(seconds.compute + seconds.two_levels),
               figure(std::max(seconds.compute, seconds.two_levels)));
  }
  fmt::print("\n");
}

void print_links(const std::vector<MegatronRow>& first, const std::vector<MegatronRow>& second) {
  fmt::print(
      "| GB/s inside | GB/s between | products | memory | table 1, % | table 2, % "
      "|\n|---|---|---|---|---|---|\n");
  for (const double inside : {200e9, 240e9, 300e9}) {
    for (const double between : {12.5e9, 20e9, 25e9}) {
      const MegatronLinks links{inside, between};
      const MegatronConstants constants = fit_megatron({first[0], first[6]}, links);
      fmt::print("| {:.0f} | {:.1f} | {:.3f} | {:.3f} | {:.1f} | {:.1f} |\n", inside / 1e9, between / 1e9,
                 constants.products, constants.memory, 100 * largest_miss(first, constants, links),
                 100 * largest_miss(second, constants, links));
    }
  }
}

void print_tables(const std::string& folder) {
  const std::vector<MegatronRow> first = read_megatron_table(folder + "/table1.csv");
  const std::vector<MegatronRow> both = read_megatron_table(folder + "/table2.csv");
  const std::vector<MegatronRow> second = megatron_rows(both, false);
  const MegatronConstants constants = fit_megatron({first.at(0), first.at(6)});
  fmt::print("products {:.4f}, memory {:.4f}\n\n", constants.products, constants.memory);
  for (const auto& rows : {first, second}) print_rows(rows, constants);
  for (const auto& rows : {first, second}) print_choices(rows, constants);
  print_shares(megatron_rows(both, true), constants);
  print_links(first, second);
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) {
    fmt::print(stderr, "usage: {} FOLDER  (with table1.csv and table2.csv)\n", arguments[0]);
    return 2;
  }
  try {
    print_tables(arguments[1]);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  }
}
