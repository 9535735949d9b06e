#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/report/check_report_input.h"
#include "tools/report/escape.h"
#include "tools/report/report_data.h"

namespace stowage::report {
namespace {

// Adds a titled list of labels and values, all escaped.
class Group {
 public:
  explicit Group(std::string_view title)
      : html_(fmt::format("<section class=\"facts\"><h2>{}</h2><dl>\n", html_text(title))) {}
  void add(std::string_view label, std::string_view value, std::string_view note = {}) {
    html_ += fmt::format("<dt>{}</dt><dd>{}", html_text(label), html_text(value));
    if (!note.empty()) html_ += fmt::format(" <small>{}</small>", html_text(note));
    html_ += "</dd>\n";
  }
  std::string close() { return html_ + "</dl></section>\n"; }

 private:
  std::string html_;
};

std::string bytes_text(Bytes bytes) { return bytes == unlimited ? "unlimited" : format_bytes(bytes); }

std::string rate_text(double per_second, const char* unit) {
  const char* const prefixes[] = {"", "k", "M", "G", "T", "P"};
  std::size_t prefix = 0;
  while (per_second >= 1000 && prefix + 1 < std::size(prefixes)) {
    per_second /= 1000;
    ++prefix;
  }
  return fmt::format("{:.3g} {}{}", per_second, prefixes[prefix], unit);
}

std::string link_text(const Link& link) { return rate_text(link.bytes_per_second, "B/s"); }
std::string latency_text(const Link& link) { return "+ " + seconds_text(link.latency_seconds) + " each"; }

std::string memory_facts(const Plan& plan, const Machine& machine, const Budget& budget) {
  Group group("Device memory");
  group.add("budget", bytes_text(budget.device));
  if (machine.overhead_bytes > 0)
    group.add("overhead", bytes_text(machine.overhead_bytes), "context, libraries");
  const Bytes room = machine.arena_in(budget.device);
  const bool share = room != unlimited && room > 0;
  group.add("arena", bytes_text(plan.device_peak_bytes),
            share ? fmt::format("{:.1f}% of the {}",
                                100 * static_cast<double>(plan.device_peak_bytes) / static_cast<double>(room),
                                machine.overhead_bytes > 0 ? "rest" : "budget")
                  : "");
  const auto gaps = static_cast<double>(plan.device_peak_bytes) - static_cast<double>(plan.live_peak_bytes);
  group.add("live peak", bytes_text(plan.live_peak_bytes),
            plan.live_peak_bytes > 0
                ? fmt::format("{:.1f}% lost to gaps", 100 * gaps / static_cast<double>(plan.live_peak_bytes))
                : "");
  return group.close();
}

std::string host_facts(const Plan& plan, const Machine& machine, const Budget& budget, Bytes peer_bytes) {
  Group group("Host and link");
  group.add("host", bytes_text(plan.host_bytes),
            budget.host == unlimited ? "" : "of " + bytes_text(budget.host));
  group.add("pinned", bytes_text(plan.pinned_bytes));
  group.add("in per step", bytes_text(plan.h2d_bytes), "h2d");
  group.add("out per step", bytes_text(plan.d2h_bytes), "d2h");
  if (peer_bytes > 0)
    group.add("from peers per step", bytes_text(peer_bytes), "at up to " + link_text(machine.peer));
  return group.close();
}

std::string step_facts(const Plan& plan, const Timeline& timeline) {
  Group group("Step");
  const double predicted = plan.predicted_step_seconds;
  group.add("predicted", seconds_text(predicted));
  if (std::abs(timeline.step_seconds - predicted) > 1e-3 * predicted)
    group.add("on this machine", seconds_text(timeline.step_seconds), "simulated");
  const double bound = plan.lower_bound_seconds;
  group.add("lower bound", seconds_text(bound), plan.bound_by.empty() ? "" : plan.bound_by + " binds");
  if (bound > 0) {
    group.add("gap", fmt::format("{:.2f} × bound", predicted / bound),
              "+ " + seconds_text(predicted - bound));
  }
  group.add("planned stall", seconds_text(timeline.stall_seconds), "compute waits");
  return group.close();
}

std::string machine_facts(const Machine& machine, const ReportOptions& options) {
  Group group("Machine");
  if (!options.machine_name.empty()) group.add("name", options.machine_name);
  group.add("link in", link_text(machine.h2d), latency_text(machine.h2d));
  group.add("link out", link_text(machine.d2h), latency_text(machine.d2h));
  group.add("arithmetic", rate_text(machine.flops_per_second, "flop/s"),
            "+ " + seconds_text(machine.launch_seconds) + " each");
  group.add("memory", rate_text(machine.device_bytes_per_second, "B/s"),
            "host " + rate_text(machine.host_bytes_per_second, "B/s"));
  return group.close();
}

std::string cells_html(const char* tag, const std::vector<std::string>& cells) {
  std::string row;
  for (const std::string& cell : cells) row += fmt::format("<{0}>{1}</{0}>", tag, html_text(cell));
  return "<tr>" + row + "</tr>\n";
}

std::string table_html(const RunTable& table) {
  std::string html = fmt::format(
      "<section class=\"facts wide\"><h2>{}</h2><div class=\"scroll\"><table>\n<thead>{}</thead>\n<tbody>",
      html_text(table.title), cells_html("th", table.columns));
  for (const std::vector<std::string>& row : table.rows) html += cells_html("td", row);
  return html + "</tbody></table></div></section>\n";
}

}  // namespace

std::string seconds_text(double seconds) {
  const double size = std::abs(seconds);
  if (size == 0) return "0 s";
  if (size < 1e-3) return fmt::format("{:.3g} µs", seconds * 1e6);
  if (size < 1) return fmt::format("{:.4g} ms", seconds * 1e3);
  return fmt::format("{:.4g} s", seconds);
}

std::string verdict_html(const Plan& plan, const Machine& machine, const Budget& budget) {
  const bool device = plan.device_peak_bytes <= machine.arena_in(budget.device);
  const bool host = plan.host_bytes <= budget.host;
  const std::string of =
      budget.device == unlimited ? "without a device budget" : "in " + bytes_text(budget.device);
  if (device && host) return "<span class=\"verdict\">fits</span> " + of;
  return fmt::format("<span class=\"verdict bad\">does not fit</span> the {} budget of {}",
                     device ? "host" : "device", bytes_text(device ? budget.host : budget.device));
}

std::string facts_html(const Plan& plan, const Timeline& timeline, const Machine& machine,
                       const ReportOptions& options, Bytes peer_bytes) {
  return memory_facts(plan, machine, options.budget) + host_facts(plan, machine, options.budget, peer_bytes) +
         step_facts(plan, timeline) + machine_facts(machine, options);
}

std::string failure_html(const RunHistory& run) {
  if (run.failure.empty()) return {};
  return fmt::format("<p class=\"failure\"><b>failed</b> {}</p>", html_text(run.failure));
}

std::string run_html(const RunHistory& run) {
  std::string groups;
  for (const RunHistory::Group& each : run.groups) {
    Group group(each.title);
    for (const RunHistory::Fact& fact : each.facts) group.add(fact.label, fact.value, fact.note);
    groups += group.close();
  }
  std::string html = groups.empty() ? groups : "<div class=\"groups\">\n" + groups + "</div>";
  for (const RunTable& table : run.tables) html += table_html(table);
  return html;
}

}  // namespace stowage::report
