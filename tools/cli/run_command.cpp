#include "tools/cli/run_command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <thread>

#include "allocator/interpose/pending_lines.h"
#include "allocator/interpose/record_writer.h"
#include "src/base/file_handle.h"
#include "src/base/output_file.h"
#include "src/base/temporary.h"
#include "stowage/error.h"
#include "tools/cli/child_process.h"
#include "tools/cli/run_report.h"
#include "tools/console/text.h"

namespace stowage {
namespace {

constexpr Bytes smallest_spill = 2_MiB;

std::optional<Bytes> size_of(const char* option, const std::string& text) {
  if (text.empty()) return std::nullopt;
  return with_prefix(option, [&] { return parse_bytes(text); });
}

namespace fs = std::filesystem;

constexpr const char* pending_variable = "STOWAGE_RUN_PENDING";

// Returns the library's path: beside the program in an installed tree, else where it was built.
std::string injected_library(const char* name) {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  const fs::path beside = (program.parent_path() / "../lib/stowage" / name).lexically_normal();
  const fs::path built = fs::path(STOWAGE_MODULE_DIR) / name;
  const fs::path found = fs::exists(beside, error) ? beside : built;
  if (!fs::exists(found, error)) {
    throw InvalidInput(
        fmt::format("run: {} is neither {} nor {}; build and install Stowage with STOWAGE_CUDA=ON", name,
                    beside.string(), built.string()));
  }
  // The loader splits its list of libraries at these characters.
  if (found.string().find_first_of(" :$") != std::string::npos) {
    throw InvalidInput(
        fmt::format("run: the loader takes no path with a space, ':' or '$' in it, such as '{}'; install "
                    "Stowage elsewhere",
                    found.string()));
  }
  return found.string();
}

std::string before_others(const char* variable, const std::string& library) {
  const char* const others = std::getenv(variable);
  return others == nullptr || *others == '\0' ? library : library + ':' + others;
}

std::string temporary_folder() {
  std::error_code error;
  return fs::temp_directory_path(error).string();
}

// Returns whether a process has the file mapped, and so will move the lines itself.
bool has_mapped(int process, const fs::path& file) {
  errno = 0;
  std::ifstream maps(fmt::format("/proc/{}/maps", process));
  if (!maps) return errno == EACCES;  // the process belongs to another user
  for (std::string line; std::getline(maps, line);)
    if (line.ends_with(file.native())) return true;
  return false;
}

// Returns whether a process writes its lines to `folder`: then it is the program, or was started by it.
bool is_of_program(const fs::path& process, const std::string& folder) {
  std::ifstream file(process / "environ", std::ios::binary);
  const std::string wanted = std::string(pending_variable) + '=' + folder;
  for (std::string entry; std::getline(file, entry, '\0');)
    if (entry == wanted) return true;
  return false;
}

// Adds the program's processes that are not in `running` yet.
void add_running_processes(const std::string& folder, std::set<int>& running) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename().string();
    int process = 0;
    const auto [end, wrong] = std::from_chars(name.data(), name.data() + name.size(), process);
    const bool is_process = wrong == std::errc() && end == name.data() + name.size();
    if (is_process && is_of_program(entry.path(), folder)) running.insert(process);
  }
}

// Returns the processes that still run when the program has ended. A process that is forked while the list is
// read may be missing from it, and its parent gone at the next reading: the list is read until
// nothing new is found.
std::set<int> running_processes(const std::string& folder) {
  std::set<int> running;
  std::size_t before = 0;
  do {
    before = running.size();
    add_running_processes(folder, running);
    add_running_processes(folder, running);
  } while (running.size() > before);
  return running;
}

// Returns the processes that do not end within a short while: a child that was just killed takes its time.
std::set<int> lasting_processes(const std::string& folder) {
  constexpr std::chrono::milliseconds patience{100}, pause{10};
  const auto end = std::chrono::steady_clock::now() + patience;
  std::set<int> running = running_processes(folder);
  while (!running.empty() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(pause);
    running = running_processes(folder);
  }
  return running;
}

// Findings about lines that are not in the record.
struct Remains {
  std::set<int> running;        // processes that write their lines themselves
  std::uint64_t unwritten = 0;  // processes that could not write all of their lines
};

// Appends the lines that ended processes left in `folder` to `record`.
Remains take_remains(const std::string& folder, const std::string& record) {
  Remains remains;
  if (folder.empty()) return remains;
  remains.running = lasting_processes(folder);
  const FileHandle file(::open(record.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const int process = interpose::process_of_pending_file(entry.path().filename().native());
    if (process == 0) continue;
    interpose::PendingLines* const lines = interpose::map_pending_lines(entry.path().string(), false);
    if (lines == nullptr) continue;
    if (remains.running.contains(process) || has_mapped(process, entry.path()))
      remains.running.insert(process);
    else
      lines->move_to(file.get(), record);
    if (lines->lost != 0) ++remains.unwritten;
    interpose::unmap_pending_lines(lines);
  }
  return remains;
}

// The file that the program's processes append to: the user's, or a temporary one, which is copied at the end
// if the user's is a device or a FIFO.
class RecordFile {
 public:
  // "-" is the standard error: the standard output is the program's.
  explicit RecordFile(const std::string& path)
      : users_("--record", path == "-" ? "/dev/stderr" : path, Writing::growing),
        pending_(temporary_folder(), "stowage-run-lines", Temporary::Kind::folder) {
    if (pending_.made() && ::chmod(pending_.path().c_str(), 0700) == 0)
      pending_path_ = fs::absolute(pending_.path()).string();
    if (users_.wanted() && !users_.is_direct()) {
      users_.start();
      path_ = fs::absolute(path).string();
    } else {
      make_own();
    }
    users_.write(interpose::record_header);
  }

  const std::string& path() const { return path_; }

  // The folder for lines that are not in the file yet; "": no folder can be made, and each line
  // is written at once.
  const std::string& pending() const { return pending_path_; }

  void finish() {
    if (own_.made() && users_.wanted()) {
      std::ifstream record(path_, std::ios::binary);
      std::vector<char> block(std::size_t{1} << 20);
      while (record.read(block.data(), std::ssize(block)) || record.gcount() > 0)
        users_.write({block.data(), static_cast<std::size_t>(record.gcount())});
    }
    users_.commit();
  }

 private:
  void make_own() {
    const std::string folder = temporary_folder();
    own_ = Temporary(folder, "stowage-run", Temporary::Kind::file);
    if (!own_.made() || ::fchmod(own_.take_file().get(), 0600) != 0)
      throw InvalidInput(fmt::format("run: no file can be made in '{}' ({}); name another folder in TMPDIR",
                                     folder, std::strerror(errno)));
    path_ = fs::absolute(own_.path()).string();
  }

  OutputFile users_;
  Temporary own_;
  Temporary pending_;
  std::string pending_path_;
  std::string path_;
};

std::uint64_t monotonic_ns() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(time.tv_nsec);
}

// Returns the number that an outer `stowage run` gives its programs in `variable`; nullopt: there is none.
std::optional<Bytes> outer(const char* variable) {
  const char* const text = std::getenv(variable);
  Bytes value = 0;
  if (text == nullptr) return std::nullopt;
  const std::string_view digits = text;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return error == std::errc() && end == digits.data() + digits.size() ? std::optional(value) : std::nullopt;
}

std::optional<Bytes> smaller(std::optional<Bytes> one, std::optional<Bytes> other) {
  return one && other ? std::min(one, other) : one ? one : other;
}

// Returns the command adapted to an outer `stowage run`, whose limits stay.
RunCommand within_outer(RunCommand command) {
  command.limit = smaller(command.limit, outer("STOWAGE_RUN_LIMIT"));
  command.spill = smaller(command.spill, outer("STOWAGE_RUN_SPILL"));
  command.cache = command.cache || outer("STOWAGE_RUN_CACHE") == Bytes{1};
  return command;
}

bool records_calls(const RunCommand& command) {
  return !command.record_file.empty() || !command.report_file.empty();
}

std::vector<std::pair<std::string, std::string>> variables_for(const RunCommand& command,
                                                               const RecordFile& record) {
  return {{"LD_PRELOAD", before_others("LD_PRELOAD", injected_library("libstowage_preload.so"))},
          {"LD_AUDIT", before_others("LD_AUDIT", injected_library("libstowage_audit.so"))},
          {"STOWAGE_RUN_LIMIT", command.limit ? std::to_string(*command.limit) : ""},
          {"STOWAGE_RUN_SPILL", command.spill ? std::to_string(*command.spill) : ""},
          {"STOWAGE_RUN_CACHE", command.cache ? "1" : ""},
          {"STOWAGE_RUN_RECORD", record.path()},
          {pending_variable, record.pending()},
          {"STOWAGE_RUN_DETAIL", records_calls(command) ? "calls" : "totals"},
          {"STOWAGE_RUN_START", std::to_string(monotonic_ns())}};
}

std::string end_text(const ChildEnd& end) {
  return end.by_signal ? fmt::format("ended by signal {} ({})", end.number, strsignal(end.number))
                       : fmt::format("exit code {}", end.number);
}

void write_report(const RunCommand& command, const RunRecord& record, const ChildEnd& end, OutputFile& file) {
  const RunReport report{command.program, command.limit, command.spill, end_text(end)};
  if (command.report_file == "-") {
    std::fputs(run_report_text(report, record).c_str(), stderr);
    return;
  }
  if (!file.wanted()) return;
  const bool page = command.report_file.ends_with(".html") || command.report_file.ends_with(".htm");
  file.write(page ? run_report_html(report, record) : run_report_text(report, record));
  file.commit();
}

void print_notes(const RunCommand& command, const RunRecord& record) {
  const std::string nothing = nothing_caught(record);
  if (!nothing.empty()) std::fprintf(stderr, "stowage: %s\n", nothing.c_str());
  if (nothing.empty() && !records_calls(command)) return;  // nobody asked for the number of calls
  const std::string missing = calls_missing(record);
  if (!missing.empty()) std::fprintf(stderr, "stowage: %s\n", missing.c_str());
}

ChildEnd run_and_report(const RunCommand& command) {
  OutputFile report_file("--report", command.report_file == "-" ? "" : command.report_file, Writing::whole);
  RecordFile record_file(command.record_file);
  const ChildEnd end = run_child(command.program, variables_for(command, record_file));
  const Remains remains = take_remains(record_file.pending(), record_file.path());
  std::ifstream text(record_file.path(), std::ios::binary);
  RunRecord record = read_run_record(text);
  record.running = remains.running;
  record.unwritten = remains.unwritten;
  record_file.finish();
  if (command.report_file != "-") print_notes(command, record);
  write_report(command, record, end, report_file);
  return end;
}

}  // namespace

CLI::App* add_run(CLI::App& app, RawRunOptions& raw) {
  CLI::App* run = app.add_subcommand("run", "Runs a CUDA program, with its memory calls watched and limited");
  run->footer(
      "As in: stowage run --limit 6GiB --report memory.html -- PROGRAM ARGUMENTS\n"
      "SIZE is 6GiB, 1.5G (binary), 10MB (decimal) or plain bytes.\n"
      "Exit code: the program's own, or the signal that ended it; 2 where it could not be started.");
  run->get_formatter()->column_width(34);
  run->add_option("--limit", raw.limit, "make every card look no larger than this")->type_name("SIZE");
  run->add_option("--spill", raw.spill, "go on in so much memory of the host where a card is full")
      ->type_name("SIZE");
  run->add_flag("--cache", raw.command.cache, "keep what cudaMalloc gave out, and give it out again");
  run->add_option("--record", raw.command.record_file, "write every memory call to this file, as CSV")
      ->type_name("FILE");
  run->add_option("--report", raw.command.report_file,
                  "write what was used here at the end: a page (.html), text, or - for stderr")
      ->type_name("FILE");
  return run;
}

std::vector<std::string> cut_program(std::vector<std::string>& words) {
  if (words.empty() || words.front() != "run") return {};
  const auto mark = std::find(words.begin(), words.end(), "--");
  if (mark == words.end()) return {};
  std::vector<std::string> program(mark + 1, words.end());
  words.erase(mark, words.end());
  return program;
}

void require_program(const RunCommand& command) {
  if (!command.program.empty()) return;
  throw InvalidInput(
      "run: there is no program; give it behind --, as in stowage run --limit 6GiB -- PROGRAM");
}

RunCommand parse(const RawRunOptions& raw) {
  RunCommand command = raw.command;
  command.limit = size_of("--limit: ", raw.limit);
  command.spill = size_of("--spill: ", raw.spill);
  if (command.limit == Bytes{0})
    throw InvalidInput("--limit: a card of 0 bytes runs nothing; give at least 1");
  if (command.spill && *command.spill < smallest_spill)
    throw InvalidInput("--spill: memory is taken in steps of 2 MiB; give at least that, or leave it out");
  require_program(command);
  return command;
}

int run_run_command(const RunCommand& command) { return end_as(run_and_report(within_outer(command))); }

}  // namespace stowage
