#include "stowage/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "src/checkpoint/checkpoint_tensors.h"
#include "src/checkpoint/checksum.h"
#include "src/checkpoint/state_json.h"
#include "src/graph/json_field.h"
#include "src/model_files/files.h"

namespace stowage {
namespace {

constexpr std::string_view open_remedy = "name the folder of a checkpoint, whole and readable";

std::string path_in(const std::string& folder, std::string_view file) { return folder + std::string(file); }

[[noreturn]] void refuse_tensor(const std::string& path, const CheckpointTensor& tensor,
                                const std::string& found) {
  throw InvalidInput(
      fmt::format("{}: the bytes of tensor {} ({} from {} on) have the checksum {} and not {}; the file is "
                  "damaged: take another checkpoint",
                  path, in_quotes(tensor.name), tensor.bytes, tensor.offset, found, tensor.checksum));
}

FileHandle open_tensors(const std::string& path, const CheckpointState& state) {
  Bytes size = 0;
  FileHandle file = open_to_read(path, open_remedy, size);
  const Bytes expected = checkpoint_bytes(state.tensors);
  if (size != expected)
    throw InvalidInput(
        fmt::format("{}: it has {} bytes, and 'tensors' in state.json takes {}; the file is damaged: take "
                    "another checkpoint",
                    path, size, expected));
  return file;
}

// Throws InvalidInput if the folder has a checkpoint's name, but of another step.
void require_name(const std::string& folder, std::uint64_t step) {
  std::error_code error;
  const std::string name = std::filesystem::canonical(folder, error).filename().string();
  const std::optional<std::uint64_t> named = step_named(name);
  if (named && *named != step)
    throw InvalidInput(
        fmt::format("{}: its name is that of step {}, and 'step' in state.json is {}; give it its own "
                    "name back, {}",
                    folder, *named, step, checkpoint_name(step)));
}

// Adds the zeros behind a value, which its checksum includes.
void add_rest(const FileHandle& file, const std::string& path, const CheckpointTensor& tensor,
              Checksum& checksum) {
  std::array<std::byte, checkpoint_alignment> rest{};
  const Bytes end = tensor.offset + tensor.bytes;
  const std::span<std::byte> bytes = std::span(rest).first(*next_offset(tensor) - end);
  read_at(file, path, end, bytes);
  checksum.add(bytes);
}

void check_tensor(const FileHandle& file, const std::string& path, const CheckpointTensor& tensor,
                  std::vector<std::byte>& piece) {
  Checksum checksum;
  for_each_piece(tensor.bytes, [&](Bytes offset, Bytes bytes) {
    piece.resize(bytes);
    read_at(file, path, tensor.offset + offset, piece);
    checksum.add(piece);
  });
  add_rest(file, path, tensor, checksum);
  if (checksum.digits() != tensor.checksum) refuse_tensor(path, tensor, checksum.digits());
}

void load_tensor(const FileHandle& file, const std::string& path, const CheckpointTensor& tensor, TensorId id,
                 const StateAccess& access) {
  Checksum checksum;
  access.fill(id, [&](Bytes offset, std::span<std::byte> piece) {
    read_at(file, path, tensor.offset + offset, piece);
    checksum.add(piece);
  });
  add_rest(file, path, tensor, checksum);
  if (checksum.digits() != tensor.checksum) refuse_tensor(path, tensor, checksum.digits());
}

// `others`: further fields that differ.
[[noreturn]] void refuse_difference(const std::string& folder, const std::string& field,
                                    const std::string& theirs, const std::string& ours,
                                    const std::vector<std::string>& others = {}) {
  constexpr std::size_t most = 8;
  std::string more;
  for (std::size_t i = 0; i < std::min(others.size(), most); ++i)
    more += (i == 0 ? "" : ", ") + in_quotes(others[i]);
  if (others.size() > most) more += fmt::format(" and {} more", others.size() - most);
  if (!more.empty()) more = fmt::format(" (others too: {})", more);
  throw InvalidInput(
      fmt::format("{}: '{}' is {}, and that of this run is {}{}; go on as it was begun, or start anew "
                  "in another folder",
                  path_in(folder, state_file), field, theirs, ours, more));
}

std::string told(const CheckpointTensor& tensor) {
  return fmt::format("{} {} {} [{}]", to_string(tensor.kind), in_quotes(tensor.name), to_string(tensor.type),
                     fmt::join(tensor.shape, ", "));
}

}  // namespace

Checkpoint::Checkpoint(std::string folder) : folder_(std::move(folder)) {
  const std::string path = path_in(folder_, state_file);
  state_ = state_from_json(read_small_file(path, largest_state_json, open_remedy), path);
  require_name(folder_, state_.step);
  const std::string tensors = path_in(folder_, tensors_file);
  const FileHandle file = open_tensors(tensors, state_);
  std::vector<std::byte> piece;
  for (const CheckpointTensor& tensor : state_.tensors) check_tensor(file, tensors, tensor, piece);
}

void Checkpoint::require_configuration(const std::map<std::string, std::string>& configuration,
                                       const std::map<std::string, std::string>& absent) const {
  using Fields = std::map<std::string, std::string>;
  const auto& stored = state_.configuration;
  const auto value_in = [&](const Fields& fields, const std::string& name) {
    for (const Fields* each : {&fields, &absent})
      if (const auto found = each->find(name); found != each->end()) return in_quotes(found->second);
    return std::string("missing");
  };
  std::vector<std::string> others;  // fields that differ
  for (const auto& [name, value] : configuration)
    if (value_in(stored, name) != in_quotes(value)) others.push_back(name);
  for (const auto& [name, value] : stored)
    if (!configuration.contains(name) && value_in(configuration, name) != in_quotes(value))
      others.push_back(name);
  if (others.empty()) return;
  const std::string first = others.front();
  others.erase(others.begin());
  refuse_difference(folder_, "configuration." + first, value_in(stored, first),
                    value_in(configuration, first), others);
}

void Checkpoint::require_graph(const Graph& graph) const {
  const std::vector<CheckpointTensor> wanted = checkpoint_tensors(graph);
  if (wanted.size() != state_.tensors.size())
    refuse_difference(folder_, "tensors", fmt::format("a list of {}", state_.tensors.size()),
                      fmt::format("one of {}", wanted.size()));
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const std::string stored = told(state_.tensors[i]);
    const std::string ours = told(wanted[i]);
    if (stored != ours) refuse_difference(folder_, fmt::format("tensors[{}]", i), stored, ours);
  }
}

void Checkpoint::load(const Graph& graph, const StateAccess& access) const {
  require_graph(graph);
  const std::string path = path_in(folder_, tensors_file);
  const FileHandle file = open_tensors(path, state_);
  const std::vector<TensorId> ids = lasting_tensors(graph);
  for (std::size_t i = 0; i < ids.size(); ++i) load_tensor(file, path, state_.tensors[i], ids[i], access);
}

struct CheckpointValues::Implementation {
  std::string path;
  FileHandle file;
  std::map<TensorId, CheckpointTensor> tensors;
};

CheckpointValues::CheckpointValues(const Checkpoint& checkpoint, const Graph& graph)
    : implementation_(std::make_unique<Implementation>()) {
  checkpoint.require_graph(graph);
  const CheckpointState& state = checkpoint.state();
  implementation_->path = path_in(checkpoint.folder(), tensors_file);
  implementation_->file = open_tensors(implementation_->path, state);
  const std::vector<TensorId> ids = lasting_tensors(graph);
  for (std::size_t i = 0; i < ids.size(); ++i) implementation_->tensors.emplace(ids[i], state.tensors[i]);
}

CheckpointValues::~CheckpointValues() = default;

std::vector<std::byte> CheckpointValues::read(TensorId tensor) const {
  const auto found = implementation_->tensors.find(tensor);
  std::vector<std::byte> value(found == implementation_->tensors.end() ? 0 : found->second.bytes);
  read(tensor, 0, value);
  return value;
}

void CheckpointValues::read(TensorId tensor, Bytes offset, std::span<std::byte> into) const {
  const auto& [path, file, tensors] = *implementation_;
  const auto found = tensors.find(tensor);
  if (found == tensors.end())
    throw InvalidInput(fmt::format(
        "{}: it has no tensor {} of the graph; read a parameter or optimizer state", path, tensor));
  const CheckpointTensor& stored = found->second;
  if (offset > stored.bytes || into.size() > stored.bytes - offset)
    throw InvalidInput(fmt::format("{}: {} bytes from {} on are beyond tensor {} of {} bytes; read fewer",
                                   path, into.size(), offset, in_quotes(stored.name), stored.bytes));
  read_at(file, path, stored.offset + offset, into);
}

}  // namespace stowage
