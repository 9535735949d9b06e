#include "tools/cli/run_command.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>

#include "allocator/interpose/record_writer.h"
#include "src/base/output_file.h"
#include "src/base/temporary.h"
#include "stowage/error.h"
#include "tools/cli/child_process.h"
#include "tools/cli/run_report.h"

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

// The file that the program's processes append to: the user's, or one of our own that goes when this does,
// from which a device or a FIFO of the user's gets it at the end.
class RecordFile {
 public:
  // "-" is the standard error: the standard output is the program's.
  explicit RecordFile(const std::string& path)
      : users_("--record", path == "-" ? "/dev/stderr" : path, Writing::growing) {
    if (users_.wanted() && !users_.is_direct()) {
      users_.start();
      path_ = fs::absolute(path).string();
    } else {
      make_own();
    }
    users_.write(interpose::record_header);
  }

  const std::string& path() const { return path_; }

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
    std::error_code error;
    const std::string folder = fs::temp_directory_path(error).string();
    own_ = Temporary(folder, "stowage-run", Temporary::Kind::file);
    if (!own_.made() || ::fchmod(own_.take_file().get(), 0600) != 0)
      throw InvalidInput(fmt::format("run: no file can be made in '{}' ({}); name another folder in TMPDIR",
                                     folder, std::strerror(errno)));
    path_ = fs::absolute(own_.path()).string();
  }

  OutputFile users_;
  Temporary own_;
  std::string path_;
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

void write_report(const RunCommand& command, const RunRecord& record, const ChildEnd& end, OutputFile& file) {
  const RunReport report{command.program, command.limit, command.spill, told(end)};
  if (command.report_file == "-") {
    std::fputs(run_report_text(report, record).c_str(), stderr);
    return;
  }
  if (!file.wanted()) return;
  const bool page = command.report_file.ends_with(".html") || command.report_file.ends_with(".htm");
  file.write(page ? run_report_html(report, record) : run_report_text(report, record));
  file.commit();
}

ChildEnd run_and_report(const RunCommand& command) {
  OutputFile report_file("--report", command.report_file == "-" ? "" : command.report_file, Writing::whole);
  RecordFile record_file(command.record_file);
  const ChildEnd end = run_child(command.program, variables_for(command, record_file.path()));
  std::ifstream text(record_file.path(), std::ios::binary);
  const RunRecord record = read_run_record(text);
  record_file.finish();
  const std::string nothing = nothing_caught(record);
  if (!nothing.empty() && command.report_file != "-") std::fprintf(stderr, "stowage: %s\n", nothing.c_str());
  write_report(command, record, end, report_file);
  return end;
}

}  // namespace

int run_run_command(const RunCommand& command) { return end_as(run_and_report(command)); }

}  // namespace stowage
