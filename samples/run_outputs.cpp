#include "samples/run_outputs.h"

#include <fmt/format.h>

#include <array>
#include <filesystem>

#include "stowage/error.h"

namespace stowage::samples {
namespace {

// The same for every spelling, also of a file that is not there yet.
std::filesystem::path full_path(const std::string& path) {
  std::error_code error;
  const std::filesystem::path full =
      std::filesystem::weakly_canonical(std::filesystem::absolute(path), error);
  return error ? std::filesystem::path(path) : full;
}

// A folder that is to appear whole has no other output in it.
void check_outside(const std::string& folder, const char* flag, const std::string& path) {
  if (folder.empty() || path.empty()) return;
  const std::filesystem::path inner =
      std::filesystem::path(full_path(path)).lexically_relative(full_path(folder));
  if (inner.empty() || *inner.begin() == "..") return;
  throw InvalidInput(fmt::format("{} {}: that is in the folder of --export; name another", flag, path));
}

}  // namespace

void check_distinct(const Options& options) {
  constexpr std::size_t inputs = 2;
  struct Named {
    const char* flag;
    const std::string& path;
  };
  const std::array<Named, 7> files = {{{"--data", options.data},
                                       {"--evaluation-data", options.evaluation_data},
                                       {"--plan-json", options.plan_file},
                                       {"--log", options.log_file},
                                       {"--trace", options.trace_file},
                                       {"--report", options.report_file},
                                       {"--weights", options.weights_file}}};
  check_outside(options.export_folder, "--checkpoint", options.checkpoint_folder);
  for (std::size_t i = inputs; i < files.size(); ++i) {
    check_outside(options.export_folder, files[i].flag, files[i].path);
    for (std::size_t j = 0; j < i; ++j) {
      if (files[i].path.empty() || files[j].path.empty()) continue;
      std::error_code error;
      const bool same = full_path(files[i].path) == full_path(files[j].path) ||
                        std::filesystem::equivalent(files[i].path, files[j].path, error);
      const bool regular = std::filesystem::is_regular_file(files[i].path, error) ||
                           !std::filesystem::exists(files[i].path, error);
      if (same && regular) {
        throw InvalidInput(fmt::format("{} {}: that is the file of {} too; name another", files[i].flag,
                                       files[i].path, files[j].flag));
      }
    }
  }
}

}  // namespace stowage::samples
