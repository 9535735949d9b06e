#include "stowage/plan_report.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "stowage/planner.h"
#include "tools/report/check_report_input.h"
#include "tools/report/escape.h"
#include "tools/report/report_data.h"
#include "tools/report/tally.h"

namespace stowage {
namespace {

using Slot = std::pair<std::string_view, std::string_view>;

// Puts each slot's text in its place, in one pass: text that looks like a slot stays as it is.
template <std::size_t N>
std::string filled(std::string_view page, const std::array<Slot, N>& slots) {
  std::string out;
  while (true) {
    const auto open = page.find("{{");
    out += page.substr(0, open);
    if (open == std::string_view::npos) return out;
    const auto close = page.find("}}", open);
    const std::string_view name = page.substr(open + 2, close - open - 2);
    for (const auto& [slot, text] : slots) {
      if (slot == name) out += text;
    }
    page.remove_prefix(close + 2);
  }
}

std::string subtitle(const Graph& graph, const Plan& plan) {
  const std::string parts = graph.micro_batches > 1 ? fmt::format("{} micro-batches {}, ",
                                                                  graph.micro_batches, to_string(plan.order))
                                                    : "";
  return report::html_text(fmt::format("policy {}, {}{} buckets, {} lifetimes, {} instructions",
                                       policy_label(plan.policy), parts, plan.buckets.size(),
                                       plan.lifetimes.size(), plan.instructions.size()));
}

}  // namespace

std::string plan_report(const Graph& graph, const Plan& plan, const Machine& machine,
                        const ReportOptions& options) {
  report::require_belongs(graph, plan);
  report::require_curve(options.curve);
  if (options.run) report::require_run(*options.run);
  const Timeline timeline = simulate(graph, plan, machine);
  report::require_times(timeline);
  const std::string title = report::html_text(options.name.empty() ? "training step" : options.name);
  const std::string verdict = report::verdict_html(plan, machine, options.budget);
  const std::string facts = report::facts_html(plan, timeline, machine, options, peer_bytes(graph, plan));
  const std::string failure = options.run ? report::failure_html(*options.run) : "";
  const std::string run = options.run ? report::run_html(*options.run) : "";
  const std::string data = report::script_json(report::report_data(graph, plan, timeline, machine, options));
  const std::string plan_line = subtitle(graph, plan);
  return filled(report::page_html, std::array<Slot, 9>{{{"title", title},
                                                        {"failure", failure},
                                                        {"verdict", verdict},
                                                        {"subtitle", plan_line},
                                                        {"run", run},
                                                        {"facts", facts},
                                                        {"style", report::page_style},
                                                        {"script", report::page_script},
                                                        {"data", data}}});
}

}  // namespace stowage
