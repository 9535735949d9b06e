// Draws instances, asks planner and oracle, and prints how far apart they are. Exits with 1 where a limit is
// broken: docs/planning.md. See bench/oracle/README.md.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cmath>
#include <fstream>
#include <thread>

#include "tests/offload/oracle/judge.h"

namespace stowage::oracle {
namespace {

constexpr double near_ratio = 1.1, near_wanted = 0.95, mean_allowed = 0.03;
constexpr double open_allowed = 0.02;  // of those that are judged

struct Settings {
  std::uint64_t seeds = 350, first = 0;
  std::size_t least_judged = 2000;
  unsigned threads = std::max(1U, std::thread::hardware_concurrency());
  double explain_from = 1.1;  // ratio
  std::string table;          // CSV of all instances; empty: none
};

std::string row(const Verdict& v) {
  return fmt::format("{},{},\"{}\",{},{},{},{:.9g},{:.9g},{:.9g},{:.9g},{},{},{}\n", v.seed, v.rung, v.shape,
                     v.minimum, v.need, v.budget, v.planner, v.lower, v.oracle, v.bound, v.exact ? 1 : 0,
                     v.planner_early, v.oracle_early);
}

struct Summary {
  std::size_t instances = 0, no_plan = 0, lost = 0, faults = 0;
  std::size_t unproven = 0;   // judged by an oracle's plan that may not be the fastest
  std::vector<Verdict> both;  // plans of both, by ratio
  std::vector<Verdict> open;  // the oracle found none

  void add(const Verdict& v) {
    ++instances;
    faults += v.faults.size();
    for (const std::string& fault : v.faults)
      fmt::print("FAULT seed {} budget {}: {}\n", v.seed, v.rung, fault);
    if (std::isinf(v.lower)) ++no_plan;
    if (v.lost()) {
      ++lost;
      fmt::print("LOST seed {} budget {}: minimum {}, the oracle plans with {}\n", v.seed, v.rung, v.minimum,
                 v.budget);
    }
    if (v.open()) open.push_back(v);
    if (!v.judged()) return;
    if (!v.exact) ++unproven;
    both.push_back(v);
  }
  double mean_gap() const {
    double sum = 0;
    for (const Verdict& v : both) sum += std::max(0.0, v.ratio() - 1);
    return both.empty() ? 0 : sum / static_cast<double>(both.size());
  }
  std::ptrdiff_t with_early(int Verdict::*updates) const {
    return std::count_if(both.begin(), both.end(), [&](const Verdict& v) { return v.*updates > 0; });
  }
  // The share of those with plans of both that is near.
  double near() const {
    const auto count =
        std::count_if(both.begin(), both.end(), [](const Verdict& v) { return v.ratio() <= near_ratio; });
    return both.empty() ? 1 : static_cast<double>(count) / static_cast<double>(both.size());
  }
};

void print_distribution(const Summary& summary) {
  const std::vector<Verdict>& all = summary.both;
  for (double part : {0.5, 0.75, 0.9, 0.95, 0.99, 1.0}) {
    const auto at = static_cast<std::size_t>(part * static_cast<double>(all.size() - 1));
    fmt::print("percentile {:5.1f}   {:.4f}\n", 100 * part, all[at].ratio());
  }
  const double edges[] = {1 + 1e-9, 1.001, 1.005, 1.01, 1.02, 1.05, 1.1, 1.2, 1.5, 1e9};
  double from = 0;
  for (double edge : edges) {
    const auto count = std::count_if(all.begin(), all.end(),
                                     [&](const Verdict& v) { return v.ratio() > from && v.ratio() <= edge; });
    fmt::print("ratio up to {:<8.4g} {:6}  {}\n", edge, count,
               std::string(static_cast<std::size_t>(60 * count) / all.size(), '#'));
    from = edge;
  }
}

void print_worst(const Summary& summary, const Settings& settings) {
  double schedule = 0, choices = 0;
  std::size_t explained = 0;
  for (std::size_t i = summary.both.size(); i-- > 0 && explained < 100;) {
    if (summary.both[i].ratio() < settings.explain_from) break;
    const Verdict v = judge(summary.both[i].seed, summary.both[i].rung, true);
    ++explained;
    schedule += v.planner / v.same_choices - 1;
    choices += std::max(0.0, v.same_choices / v.oracle - 1);
    if (explained > 20) continue;
    fmt::print(
        "seed {} budget {} ({}): ratio {:.4f}, of it {:.4f} with the planner's own choices\n  planner {}\n  "
        "oracle  {}\n",
        v.seed, v.rung, v.shape, v.ratio(), v.planner / v.same_choices, v.planner_choice, v.oracle_choice);
  }
  if (explained > 0)
    fmt::print("of the worst {}: {:.2f} % by schedule, {:.2f} % by choices, on average\n", explained,
               100 * schedule / static_cast<double>(explained),
               100 * choices / static_cast<double>(explained));
}

// By seed, then by budget.
std::vector<Verdict> judge_all(const Settings& settings) {
  std::vector<Verdict> verdicts(settings.seeds * rungs);
  std::atomic<std::size_t> next = 0;
  auto work = [&] {
    for (std::size_t i = next++; i < verdicts.size(); i = next++)
      verdicts[i] = judge(settings.first + i / rungs, static_cast<int>(i % rungs), false);
  };
  std::vector<std::thread> threads;
  for (unsigned i = 1; i < settings.threads; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  return verdicts;
}

int run(const Settings& settings) {
  Summary summary;
  std::string table =
      "seed,budget_number,shape,minimum,need,budget,planner_s,lower_s,oracle_s,bound_s,exact,planner_early,"
      "oracle_early\n";
  for (const Verdict& verdict : judge_all(settings)) {
    table += row(verdict);
    summary.add(verdict);
  }
  if (!settings.table.empty()) std::ofstream(settings.table) << table;
  std::stable_sort(summary.both.begin(), summary.both.end(),
                   [](const Verdict& a, const Verdict& b) { return a.ratio() < b.ratio(); });
  const double worst = summary.both.empty() ? 1 : summary.both.back().ratio();
  print_worst(summary, settings);
  double open_worst = 1;
  for (const Verdict& v : summary.open) open_worst = std::max(open_worst, v.planner / v.lower);
  fmt::print(
      "instances {}: {} without any plan, {} judged, {} open\n"
      "judged: for {} the oracle's plan is not proven to be the fastest\n"
      "open: the oracle found neither a plan nor a proof that there is none; the planner's takes at most "
      "{:.4f} "
      "times what is proven to be the least\n",
      summary.instances, summary.no_plan, summary.both.size(), summary.open.size(), summary.unproven,
      open_worst);
  fmt::print("judged: with updates before the gate {} of the oracle's plans and {} of the planner's\n",
             summary.with_early(&Verdict::oracle_early), summary.with_early(&Verdict::planner_early));
  if (!summary.both.empty()) print_distribution(summary);
  fmt::print(
      "judged {} (at least {}), {:.2f} % with a ratio of at most {} (at least {} %), worst {:.4f}, mean gap "
      "{:.3f} % "
      "(limit {} %), infeasible where the oracle plans {} (limit 0), faults {} (limit 0)\n",
      summary.both.size(), settings.least_judged, 100 * summary.near(), near_ratio, 100 * near_wanted, worst,
      100 * summary.mean_gap(), 100 * mean_allowed, summary.lost, summary.faults);
  const bool good =
      summary.near() >= near_wanted && summary.mean_gap() <= mean_allowed && summary.lost == 0 &&
      summary.faults == 0 && summary.both.size() >= settings.least_judged &&
      static_cast<double>(summary.open.size()) <= open_allowed * static_cast<double>(summary.both.size());
  fmt::print("{}\n", good ? "all limits hold" : "a limit is broken");
  return good ? 0 : 1;
}

}  // namespace
}  // namespace stowage::oracle

int main(int argc, char** argv) {
  CLI::App app{"How far the planner is from the oracle on small instances"};
  stowage::oracle::Settings settings;
  app.add_option("--seeds", settings.seeds, "graphs; each is planned for 8 budgets");
  app.add_option("--first", settings.first, "first seed");
  app.add_option("--threads", settings.threads, "instances judged at a time");
  app.add_option("--least-judged", settings.least_judged, "fewer than this is a limit broken");
  app.add_option("--explain-from", settings.explain_from, "ratio from which a gap is explained");
  app.add_option("--table", settings.table, "CSV file for all instances");
  CLI11_PARSE(app, argc, argv);
  return stowage::oracle::run(settings);
}
