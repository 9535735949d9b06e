#include "src/cli/run_command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>

#include "allocator/interpose/record_writer.h"
#include "src/cli/child_process.h"
#include "src/cli/files.h"
#include "src/cli/run_report.h"
#include "stowage/error.h"

namespace stowage {
namespace {

namespace fs = std::filesystem;

// Beside the program in an installed tree, else where it was built.
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
  // The loader takes a list apart at these.
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

// The file that the record goes to: the user's, or one of our own that goes when this does.
class RecordFile {
 public:
  explicit RecordFile(const std::string& path) : path_(path), own_(path.empty()) {
    if (own_) {
      path_ = (fs::temp_directory_path() / "stowage-run-XXXXXX").string();
      const int file = mkstemp(path_.data());
      if (file < 0) {
        throw InvalidInput(fmt::format("run: no file can be made in {} ({}); name another folder in TMPDIR",
                                       fs::temp_directory_path().string(), std::strerror(errno)));
      }
      close(file);
      return;
    }
    check_writable(path_);
    path_ = fs::absolute(path_).string();
    write_file(path_, interpose::record_header);
  }
  ~RecordFile() {
    std::error_code error;
    if (own_) fs::remove(path_, error);
  }
  RecordFile(const RecordFile&) = delete;
  RecordFile& operator=(const RecordFile&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool own_;
};

std::uint64_t monotonic_ns() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(time.tv_nsec);
}

std::vector<std::pair<std::string, std::string>> variables_for(const RunCommand& command,
                                                               const std::string& record) {
  const bool every_call = !command.record_file.empty() || !command.report_file.empty();
  return {{"LD_PRELOAD", before_others("LD_PRELOAD", injected_library("libstowage_preload.so"))},
          {"LD_AUDIT", before_others("LD_AUDIT", injected_library("libstowage_audit.so"))},
          {"STOWAGE_RUN_LIMIT", command.limit ? std::to_string(*command.limit) : ""},
          {"STOWAGE_RUN_SPILL", command.spill ? std::to_string(*command.spill) : ""},
          {"STOWAGE_RUN_CACHE", command.cache ? "1" : ""},
          {"STOWAGE_RUN_RECORD", record},
          {"STOWAGE_RUN_DETAIL", every_call ? "calls" : "totals"},
          {"STOWAGE_RUN_START", std::to_string(monotonic_ns())}};
}

std::string told(const ChildEnd& end) {
  return end.by_signal ? fmt::format("ended by signal {} ({})", end.number, strsignal(end.number))
                       : fmt::format("exit code {}", end.number);
}

void write_report(const RunCommand& command, const RunRecord& record, const ChildEnd& end) {
  const RunReport report{command.program, command.limit, command.spill, told(end)};
  if (command.report_file.empty()) return;
  if (command.report_file == "-") {
    std::fputs(run_report_text(report, record).c_str(), stderr);
    return;
  }
  const bool page = command.report_file.ends_with(".html") || command.report_file.ends_with(".htm");
  write_file(command.report_file, page ? run_report_html(report, record) : run_report_text(report, record));
}

ChildEnd run_and_report(const RunCommand& command) {
  const RecordFile record_file(command.record_file);
  const ChildEnd end = run_child(command.program, variables_for(command, record_file.path()));
  std::ifstream text(record_file.path(), std::ios::binary);
  const RunRecord record = read_run_record(text);
  const std::string nothing = nothing_caught(record);
  if (!nothing.empty() && command.report_file != "-") std::fprintf(stderr, "stowage: %s\n", nothing.c_str());
  write_report(command, record, end);
  return end;
}

}  // namespace

int run_run_command(const RunCommand& command) {
  if (!command.report_file.empty() && command.report_file != "-") check_writable(command.report_file);
  return end_as(run_and_report(command));
}

}  // namespace stowage
