#include "samples/run/run_outputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "src/base/printable.h"
#include "stowage/error.h"

namespace stowage::samples {
namespace {

// Returns one path for all its spellings, also for a file that is not there yet.
std::filesystem::path full_path(std::string_view path) {
  std::error_code error;
  const std::filesystem::path full =
      std::filesystem::weakly_canonical(std::filesystem::absolute(path), error);
  return error ? std::filesystem::path(path) : full;
}

// A folder that appears only when complete may have no other output in it.
void check_outside(std::string_view folder, const char* flag, std::string_view path) {
  if (folder.empty() || path.empty()) return;
  const std::filesystem::path inner =
      std::filesystem::path(full_path(path)).lexically_relative(full_path(folder));
  if (inner.empty() || *inner.begin() == "..") return;
  throw InvalidInput(fmt::format("{} {}: that is in the folder of --export; name another", flag, path));
}

struct NamedFile {
  const char* flag;
  std::string_view path;
};

std::vector<NamedFile> outputs_of(const Options& options) {
  return {{"--plan-json", options.plan_file},
          {"--log", options.log_file},
          {"--trace", options.trace_file},
          {"--report", options.report_file},
          {"--weights", options.weights_file}};
}

// An input: a file, or a folder or pattern that stands for files of these names ("*…": all names with this
// end). `together`: if one of them is named, the others beside it are read too.
struct Input {
  NamedFile named;
  std::array<std::string_view, 4> names{};
  bool together = false;
};

std::vector<Input> inputs_of(const Options& options) {
  return {
      {{"--data", options.data}, {"*.bin"}},
      {{"--evaluation-data", options.evaluation_data}, {"*.bin"}},
      {{"--machine", options.machine}},
      {{"--tokenizer", options.tokenizer}, {"tokenizer.json", "vocab.json", "merges.txt", "vocab.txt"}, true},
      {{"--init", options.init}, {"config.json", "*.safetensors", "*.safetensors.index.json"}, true},
      {{"--resume", options.resume_from}, {"state.json", "tensors.bin"}}};
}

bool same_file(std::string_view one, std::string_view other) {
  std::error_code error;
  return full_path(one) == full_path(other) || std::filesystem::equivalent(one, other, error);
}

bool matches(const std::string& name, std::string_view pattern) {
  if (pattern.empty()) return false;
  return pattern.starts_with('*') ? name.ends_with(pattern.substr(1)) : name == pattern;
}

bool is_read(const Input& input, std::string_view output) {
  if (same_file(input.named.path, output)) return true;
  std::error_code error;
  const std::filesystem::path file = full_path(output);
  const std::filesystem::path place = full_path(input.named.path);
  const bool folder = std::filesystem::is_directory(place, error);
  const bool pattern = input.named.path.find_first_of("*?[") != std::string_view::npos;
  if (!folder && !pattern && !input.together) return false;
  if (file.parent_path() != (folder ? place : place.parent_path())) return false;
  return std::any_of(input.names.begin(), input.names.end(),
                     [&](std::string_view pattern) { return matches(file.filename().string(), pattern); });
}

// Returns whether the output is the values or the state of a checkpoint of the run.
bool is_in_checkpoint(std::string_view folder, std::string_view output) {
  const std::filesystem::path file = full_path(output);
  const std::filesystem::path checkpoint = file.parent_path();
  return !folder.empty() && checkpoint.filename().string().starts_with("step-") &&
         checkpoint.parent_path() == full_path(folder);
}

// Returns true for a terminal, a pipe or /dev/null, which a write does not replace.
bool is_no_file(std::string_view path) {
  std::error_code error;
  return std::filesystem::exists(path, error) && !std::filesystem::is_regular_file(path, error);
}

void check_keeps_inputs(const Options& options, const NamedFile& output) {
  for (const Input& input : inputs_of(options)) {
    if (!input.named.path.empty() && is_read(input, output.path))
      throw InvalidInput(fmt::format("{} {}: that is the file of {} too; name another", output.flag,
                                     output.path, input.named.flag));
  }
  if (is_in_checkpoint(options.checkpoint_folder, output.path))
    throw InvalidInput(fmt::format("{} {}: that is in a checkpoint of --checkpoint; name another",
                                   output.flag, output.path));
}

}  // namespace

void check_distinct(const Options& options) {
  check_outside(options.export_folder, "--checkpoint", options.checkpoint_folder);
  const std::vector<NamedFile> outputs = outputs_of(options);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const NamedFile& output = outputs[i];
    if (output.path.empty()) continue;
    check_outside(options.export_folder, output.flag, output.path);
    if (is_no_file(output.path)) continue;
    check_keeps_inputs(options, output);
    for (std::size_t j = 0; j < i; ++j) {
      if (!outputs[j].path.empty() && same_file(output.path, outputs[j].path))
        throw InvalidInput(fmt::format("{} {}: that is the file of {} too; name another", output.flag,
                                       output.path, outputs[j].flag));
    }
  }
}

bool Failures::spare(const std::function<void()>& action) {
  try {
    action();
    return true;
  } catch (const Error& error) {
    std::fflush(stdout);
    std::fprintf(stderr, "%s: %s\n", program_name(program_), printable_lines(error.what()).c_str());
    any_ = true;
    return false;
  }
}

std::string weights_index(const Graph& graph) {
  using nlohmann::ordered_json;
  ordered_json tensors = ordered_json::array();
  Bytes offset = 0;
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.kind != TensorKind::parameter) continue;
    tensors.push_back({{"name", tensor.name},
                       {"type", to_string(tensor.type)},
                       {"shape", tensor.shape},
                       {"offset", offset},
                       {"bytes", tensor.bytes()}});
    offset += tensor.bytes();
  }
  return ordered_json{{"format", "stowage-weights"}, {"version", 1}, {"tensors", std::move(tensors)}}.dump() +
         '\n';
}

void write_weights(OutputFile& file, const Graph& graph, const ReadTensor& read) {
  if (!file.wanted()) return;
  file.write(weights_index(graph));
  for (TensorId id = 0; id < graph.tensors.size(); ++id) {
    if (graph.tensor(id).kind != TensorKind::parameter) continue;
    const std::vector<std::byte> value = read(id);
    file.write({reinterpret_cast<const char*>(value.data()), value.size()});
  }
  file.commit();
}

}  // namespace stowage::samples
