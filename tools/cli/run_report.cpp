#include "tools/cli/run_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "src/base/printable.h"
#include "tools/console/text.h"
#include "tools/report/escape.h"

namespace stowage {
namespace {

using report::html_text;

constexpr double width = 960, height = 220;  // size of a chart, in pixels
constexpr std::size_t most_processes_shown = 50;

constexpr std::string_view page_style = R"(
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1000px; margin: 2em auto; padding: 0 1em; color: #222; background: #fff }
h1 { font-size: 1.4em; overflow-wrap: anywhere } h2 { font-size: 1.1em; margin-top: 2em }
table { border-collapse: collapse } th, td { padding: .2em .9em .2em 0; text-align: right; border-bottom: 1px solid #ddd }
th:first-child, td:first-child { text-align: left } .note { background: #fff3cd; padding: .6em 1em }
svg { width: 100%; height: auto } .area { fill: #7aa6d8 } .limit { stroke: #c0392b; stroke-dasharray: 6 4 } .axis { stroke: #888 }
text { font-size: 12px; fill: #555 })";

struct Total {
  std::map<std::string, RunKind> kinds;
  std::set<int> devices;
};

Total total_of(const RunRecord& record) {
  Total total;
  for (const auto& [id, process] : record.processes) {
    for (const auto& [device, card] : process.cards) total.devices.insert(device);
    for (const auto& [name, kind] : process.kinds) {
      RunKind& sum = total.kinds[name];
      sum.calls += kind.calls;
      sum.frees += kind.frees;
      sum.failed += kind.failed;
      sum.refused += kind.refused;
      sum.bytes += kind.bytes;
      sum.live += kind.live;
      sum.peak = std::max(sum.peak, kind.peak);
    }
  }
  return total;
}

// Memory that all processes held together: the largest value in each step.
struct Together {
  std::uint64_t step_ns = 1;
  std::vector<Bytes> values;
  Bytes peak = 0;
};

Together together(const std::vector<const RunCurve*>& curves, Bytes peak) {
  Together sum;
  sum.peak = peak;
  for (const RunCurve* curve : curves) sum.step_ns = std::max(sum.step_ns, curve->step_ns());
  for (const RunCurve* curve : curves) {
    const std::vector<Bytes> values = curve->values(sum.step_ns);
    sum.values.resize(std::max(sum.values.size(), values.size()), 0);
    for (std::size_t i = 0; i < values.size(); ++i) sum.values[i] += values[i];
  }
  for (const Bytes value : sum.values) sum.peak = std::max(sum.peak, value);
  return sum;
}

Together together(const RunRecord& record, int device) {
  std::vector<const RunCurve*> curves;
  Bytes peak = 0;
  for (const auto& [id, process] : record.processes) {
    const auto card = process.cards.find(device);
    if (card == process.cards.end()) continue;
    curves.push_back(&card->second.curve);
    peak = std::max(peak, card->second.peak);
  }
  return together(curves, peak);
}

// Memory of all processes that went to the host in place of the card.
struct Spilled {
  std::uint64_t calls = 0, full = 0, failed = 0;
  Bytes bytes = 0, asked = 0;  // `asked`: bytes of all calls for memory that belongs on a card
  double byte_seconds = 0, all_byte_seconds = 0;
  Together sum;
};

Spilled spilled_of(const RunRecord& record) {
  Spilled spilled;
  std::vector<const RunCurve*> curves;
  Bytes peak = 0;
  for (const auto& [id, process] : record.processes) {
    const RunSpill& spill = process.spill;
    spilled.calls += spill.calls;
    spilled.full += spill.full;
    spilled.failed += spill.failed;
    spilled.bytes += spill.bytes;
    spilled.byte_seconds += spill.held.byte_seconds();
    for (const auto& [device, card] : process.cards) spilled.all_byte_seconds += card.held.byte_seconds();
    for (const std::string_view name : {"device", "pitched", "async", "pool", "physical"}) {
      const auto kind = process.kinds.find(std::string(name));
      if (kind != process.kinds.end()) spilled.asked += kind->second.bytes;
    }
    if (spill.calls > 0) curves.push_back(&spill.curve);
    peak = std::max(peak, spill.peak);
  }
  spilled.all_byte_seconds += spilled.byte_seconds;
  spilled.sum = together(curves, peak);
  return spilled;
}

std::string percent(double part, double whole) {
  return whole > 0 ? fmt::format("{:.1f} %", 100 * part / whole) : "0 %";
}

std::string spilled_text(const Spilled& spilled) {
  if (spilled.calls == 0) return "nothing had to go to the host";
  return fmt::format(
      "{} allocations of {} went to the host, {} of the bytes asked of the card; {} at most at one time",
      grouped(spilled.calls), exact(spilled.bytes),
      percent(static_cast<double>(spilled.bytes), static_cast<double>(spilled.asked)),
      exact(spilled.sum.peak));
}

// Returns what is known about the cost of spilling. The number of times a program touches its
// memory is not known.
std::string spill_cost(const Spilled& spilled) {
  return fmt::format(
      "{:.3g} GiB s of memory lived across the link, {} of all that the program held of the card and the "
      "host. The card reads and writes it over the link each time; how often, and what that took, is not "
      "measured",
      spilled.byte_seconds / static_cast<double>(1_GiB),
      percent(spilled.byte_seconds, spilled.all_byte_seconds));
}

std::string processes_of(const RunRecord& record) {
  const std::size_t count = record.images.size(), images = record.processes.size();
  const std::string processes = fmt::format("{} process{}", count, count == 1 ? "" : "es");
  return images == count ? processes : fmt::format("{} process images of {}", images, processes);
}

std::string command_line(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words)
    line += (line.empty() ? "" : " ") + printable(word, std::string::npos);
  return line;
}

std::string chart(const Together& sum, const std::optional<Bytes>& limit) {
  const Bytes top = std::max<Bytes>({1, sum.peak, limit && *limit <= 4 * sum.peak ? *limit : 0});
  const auto y = [&](Bytes bytes) {
    return height - height * static_cast<double>(bytes) / static_cast<double>(top);
  };
  const double wide = width / static_cast<double>(std::max<std::size_t>(1, sum.values.size()));
  std::string path = fmt::format("M0,{}", height);
  for (std::size_t i = 0; i < sum.values.size(); ++i) {
    if (i > 0 && sum.values[i] == sum.values[i - 1]) continue;
    path += fmt::format("H{:.2f}V{:.2f}", wide * static_cast<double>(i), y(sum.values[i]));
  }
  path += fmt::format("H{}V{}Z", width, height);
  std::string svg = fmt::format(
      "<svg viewBox=\"0 -20 {} {}\" role=\"img\" aria-label=\"memory over time\"><path class=\"area\" "
      "d=\"{}\"/>",
      width, height + 40, path);
  if (limit && *limit <= top) {
    svg += fmt::format("<line class=\"limit\" x1=\"0\" x2=\"{}\" y1=\"{:.2f}\" y2=\"{:.2f}\"/>", width,
                       y(*limit), y(*limit));
  }
  const double seconds = static_cast<double>(sum.step_ns) * 1e-9 * static_cast<double>(sum.values.size());
  return svg + fmt::format(
                   "<line class=\"axis\" x1=\"0\" x2=\"{0}\" y1=\"{1}\" y2=\"{1}\"/>"
                   "<text x=\"0\" y=\"-6\">{2}</text><text x=\"0\" y=\"{3}\">0</text>"
                   "<text x=\"{0}\" y=\"{3}\" text-anchor=\"end\">{4}</text></svg>",
                   width, height, format_bytes(top), height + 16, format_seconds(seconds));
}

std::string kinds_table(const Total& total) {
  std::string rows =
      "<table><tr><th>kind<th>allocations<th>bytes asked<th>frees<th>failed<th>over the limit<th>peak"
      "<th>left at the end</tr>";
  for (const auto& [name, kind] : total.kinds) {
    rows +=
        fmt::format("<tr><td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}</tr>", html_text(name),
                    grouped(kind.calls), format_bytes(kind.bytes), grouped(kind.frees), grouped(kind.failed),
                    grouped(kind.refused), format_bytes(kind.peak), format_bytes(kind.live));
  }
  return rows + "</table>";
}

std::string processes_table(const RunRecord& record) {
  std::string rows = "<table><tr><th>process<th>program<th>calls<th>peak</tr>";
  std::size_t shown = 0;
  for (const auto& [image, process] : record.processes) {
    if (++shown > most_processes_shown) break;
    Bytes peak = 0;
    for (const auto& [device, card] : process.cards) peak = std::max(peak, card.peak);
    rows += fmt::format("<tr><td>{}<td>{}<td>{}<td>{}</tr>", image.process, html_text(process.program),
                        grouped(process.calls), format_bytes(peak));
  }
  rows += "</table>";
  if (record.processes.size() > most_processes_shown) {
    rows += fmt::format("<p>and {} more</p>", record.processes.size() - most_processes_shown);
  }
  return rows;
}

std::string names_of(const std::map<std::string, int>& programs) {
  constexpr std::size_t most = 20;
  std::string names;
  std::size_t shown = 0;
  for (const auto& [name, times] : programs) {
    if (++shown > most) return fmt::format("{} and {} more", names, programs.size() - most);
    names += fmt::format("{}{}{}", shown == 1 ? "" : ", ", printable(name),
                         times > 1 ? fmt::format(" ({} times)", times) : "");
  }
  return names;
}

// Returns lines that say what the figures do not cover.
std::vector<std::string> notes_of(const RunRecord& record) {
  std::vector<std::string> notes;
  for (std::string note : {nothing_caught(record), calls_missing(record)})
    if (!note.empty()) notes.push_back(std::move(note));
  const Spilled spilled = spilled_of(record);
  if (spilled.full > 0) {
    notes.push_back(fmt::format("{} allocation{} found the host memory of --spill used up, and failed",
                                grouped(spilled.full), spilled.full == 1 ? "" : "s"));
  }
  if (spilled.failed > 0) {
    notes.push_back(
        fmt::format("for {} allocation{} the driver had no host memory, within --spill; they failed",
                    grouped(spilled.failed), spilled.failed == 1 ? "" : "s"));
  }
  if (record.not_exported > 0) {
    notes.push_back(
        fmt::format("{} call{} to share memory with other processes failed: it was spilled or cached",
                    grouped(record.not_exported), record.not_exported == 1 ? "" : "s"));
  }
  if (!record.unwatched.empty()) {
    notes.push_back(
        fmt::format("started in an environment without the libraries, so neither limited nor recorded: {}",
                    names_of(record.unwatched)));
  }
  if (!record.elsewhere.empty()) {
    notes.push_back(fmt::format("started with another record, by a stowage run inside of this one: {}",
                                names_of(record.elsewhere)));
  }
  if (!record.unrecorded.empty()) {
    notes.push_back(
        fmt::format("became a user who cannot write the record: {}; what these processes and those that they "
                    "started did then is not in here",
                    names_of(record.unrecorded)));
  }
  for (const auto& [name, times] : record.missed) {
    notes.push_back(
        fmt::format("{} was asked for at a version newer than this Stowage knows: its calls are not in here",
                    printable(name)));
  }
  if (record.unreadable > 0) {
    const bool one = record.unreadable == 1;
    notes.push_back(
        fmt::format("{} line{} of the record {} not readable; a process that was killed may leave one",
                    record.unreadable, one ? "" : "s", one ? "is" : "are"));
  }
  return notes;
}

}  // namespace

std::string nothing_caught(const RunRecord& record) {
  if (record.calls() > 0) return {};
  if (record.processes.empty()) {
    return "0 calls were caught: no process took the libraries in, so the program is linked statically, "
           "set-uid, or not of x86-64";
  }
  const bool all_ended = std::all_of(record.processes.begin(), record.processes.end(),
                                     [](const auto& image) { return image.second.has_ended; });
  return fmt::format(
      "0 calls were caught: the libraries were in {}, and {}{}", processes_of(record),
      all_ended ? "none of them allocated CUDA memory"
                : "none of them had allocated CUDA memory when it was killed or read",
      record.elsewhere.empty() ? "" : ", but programs have another record: " + names_of(record.elsewhere));
}

std::string calls_missing(const RunRecord& record) {
  std::vector<std::string> why;
  const auto add = [&](std::uint64_t count, std::string_view what) {
    if (count > 0)
      why.push_back(fmt::format("{} process{} {}", grouped(count), count == 1 ? "" : "es", what));
  };
  add(record.unwritten, "could not write all lines");
  add(record.running.size(), "went on when the program had ended");
  add(record.without_end(),
      "ended without a last line, killed or crashed; calls that were under way are not counted");
  return why.empty() ? "" : fmt::format("some calls may be missing: {}", fmt::join(why, "; "));
}

std::string run_report_text(const RunReport& report, const RunRecord& record) {
  Lines lines;
  lines.add("program", "{}", command_line(report.program));
  lines.add("end", "{}", report.end);
  lines.add("limit", "{}", report.limit ? exact(*report.limit) : "none");
  lines.add("calls", "{} caught in {}", grouped(record.calls()), processes_of(record));
  const Total total = total_of(record);
  for (const int device : total.devices) {
    lines.add("peak", "{} of device {}", exact(together(record, device).peak), device);
  }
  const Spilled spilled = spilled_of(record);
  if (report.spill || spilled.calls > 0) lines.add("spilled", "{}", spilled_text(spilled));
  if (spilled.calls > 0) lines.add("cost", "{}", spill_cost(spilled));
  for (const auto& [name, kind] : total.kinds) {
    lines.add(printable(name), "{} allocations of {}, {} frees, {} failed, {} over the limit, {} left",
              grouped(kind.calls), exact(kind.bytes), grouped(kind.frees), grouped(kind.failed),
              grouped(kind.refused), exact(kind.live));
  }
  for (const std::string& note : notes_of(record)) lines.add("note", "{}", note);
  return std::move(lines).text();
}

std::string run_report_html(const RunReport& report, const RunRecord& record) {
  const std::string title = html_text(command_line(report.program));
  std::string page = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta "
      "charset=\"utf-8\"><title>{0}</title><style>{1}</style></head>"
      "<body><h1>{0}</h1>\n",
      title, page_style);
  for (const std::string& note : notes_of(record))
    page += fmt::format("<p class=\"note\">{}</p>\n", html_text(note));
  page += fmt::format("<p>{} calls caught in {}; {}; {}.</p>\n", grouped(record.calls()),
                      processes_of(record), html_text(report.end),
                      report.limit ? "each card limited to " + exact(*report.limit) : "no limit");
  const Total total = total_of(record);
  for (const int device : total.devices) {
    const Together sum = together(record, device);
    page +=
        fmt::format("<h2>Device {}: peak {}</h2>\n{}\n", device, exact(sum.peak), chart(sum, report.limit));
  }
  const Spilled spilled = spilled_of(record);
  if (report.spill || spilled.calls > 0) {
    page += fmt::format("<h2>On the host in the card's place</h2>\n<p>{}.</p>\n", spilled_text(spilled));
  }
  if (spilled.calls > 0) {
    page += fmt::format("{}\n<p>{}.</p>\n", chart(spilled.sum, report.spill), spill_cost(spilled));
  }
  page +=
      "<h2>Calls by kind</h2>\n" + kinds_table(total) + "\n<h2>Processes</h2>\n" + processes_table(record);
  return page +
         "\n<p>Bytes are those that the program asked for. Managed memory, and memory on the host, are no "
         "part of a device's peak.</p></body></html>\n";
}

}  // namespace stowage
