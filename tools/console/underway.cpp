#include "tools/console/underway.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "src/base/printable.h"
#include "tools/console/interrupt.h"
#include "tools/console/terminal.h"
#include "tools/console/text.h"

namespace stowage {
namespace {

// Time between checks for signals, and between rewritten lines.
constexpr std::chrono::milliseconds tick{100};

Mutex undo_mutex;
std::list<std::function<void()>> undos STOWAGE_GUARDED_BY(undo_mutex);
Mutex end_mutex;
std::list<std::function<std::string()>> ends STOWAGE_GUARDED_BY(end_mutex);
constexpr int ended_code = 1;

// The work is abandoned midway: only the things undone here may still be touched.
[[noreturn]] void abandon(const std::string& why, int code) {
  const MutexLock lock(undo_mutex);
  std::fprintf(stderr, "%s%s: %s\n", terminal_columns(stderr) > 0 ? "\r\033[K" : "",
               program_invocation_short_name, printable_message(why).c_str());
  for (const auto& undo : undos) undo();
  std::fflush(stdout);
  ::_exit(code);
}

std::string why_ended() {
  const MutexLock lock(end_mutex);
  for (const auto& why : ends)
    if (std::string text = why(); !text.empty()) return text;
  return {};
}

}  // namespace

OnAbandon::OnAbandon(std::function<void()> undo) {
  const MutexLock lock(undo_mutex);
  place_ = undos.insert(undos.end(), std::move(undo));
}

OnAbandon::~OnAbandon() {
  const MutexLock lock(undo_mutex);
  undos.erase(place_);
}

EndOfWork::EndOfWork(std::function<std::string()> why) {
  const MutexLock lock(end_mutex);
  place_ = ends.insert(ends.end(), std::move(why));
}

EndOfWork::~EndOfWork() {
  const MutexLock lock(end_mutex);
  ends.erase(place_);
}

std::string terminal_line(const UnderwayLine& line, int columns) {
  const std::string share = line.share < 0 ? "" : fmt::format("{:.0f}%, ", 100 * line.share);
  std::string text = fmt::format("{} {}: {}{:.0f} s", line.label, printable(line.what), share, line.seconds);
  // The line is cut, since a line that wraps could not be rewritten.
  text.resize(std::min(text.size(), static_cast<std::size_t>(std::max(columns - 1, 0))));
  return text;
}

std::string plain_line(const UnderwayLine& line) {
  Lines lines;
  lines.add(line.label, "{}", printable(line.what));
  return std::move(lines).text();
}

Underway::Underway(std::string label, std::string what, std::chrono::milliseconds patience)
    : line_{.label = std::move(label), .what = std::move(what)},
      patience_(patience),
      watcher_([this] { watch(); }) {}

Underway::~Underway() {
  {
    const MutexLock lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  watcher_.join();
  if (shown_ && terminal_columns(stderr) > 0) std::fputs("\r\033[K", stderr);
}

void Underway::watch() {
  const auto begun = std::chrono::steady_clock::now();
  const MutexLock lock(mutex_);
  while (!over_) {
    if (interrupted())
      abandon(fmt::format("stopped by {} while {} {}, before the first step", interrupted_by(), line_.label,
                          line_.what),
              interrupted_code);
    if (const std::string why = why_ended(); !why.empty()) abandon(why, ended_code);
    const auto passed = std::chrono::steady_clock::now() - begun;
    if (passed >= patience_) show(std::chrono::duration<double>(passed).count());
    changed_.wait_for(mutex_, tick);
  }
}

void Underway::show(double seconds) {
  const int columns = terminal_columns(stderr);
  if (columns == 0 && shown_) return;
  shown_ = true;
  line_.seconds = seconds;
  line_.share = share_;
  std::FILE* const to = columns > 0 ? stderr : stdout;
  std::fputs((columns > 0 ? "\r\033[K" + terminal_line(line_, columns) : plain_line(line_)).c_str(), to);
  std::fflush(to);
}

}  // namespace stowage
