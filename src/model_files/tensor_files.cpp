#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "src/base/lfs_pointer.h"
#include "src/graph/json_field.h"
#include "src/model_files/files.h"
#include "src/model_files/parameter_parts.h"
#include "stowage/error.h"
#include "stowage/safetensors.h"

namespace stowage {

// Not in the anonymous namespace: a member of the implementation has this type.
struct OpenTensorFile {
  std::string path;
  FileHandle handle;
  SafetensorsHeader header;
};

namespace {

namespace fs = std::filesystem;

constexpr const char* tensor_remedy =
    "give a .safetensors file, its .index.json, or a folder with model.safetensors";
constexpr const char* pickle_remedy =
    "a pickle, which is not read: convert it once with python3 -c \"from transformers import "
    "AutoModelForPreTraining as M; M.from_pretrained('DIR').save_pretrained('NEW')\" (DIR: its folder) and "
    "give NEW";
constexpr std::size_t most_files = 512;
constexpr Bytes most_index_bytes = 64_MiB;

// Whether the name is of a file that PyTorch saves by pickle.
bool is_pickle(const std::string& path) {
  return path.ends_with(".bin") || path.ends_with(".pt") || path.ends_with(".pth");
}

OpenTensorFile open_file(const std::string& path) {
  if (is_pickle(path)) throw InvalidInput(fmt::format("{}: this is {}", path, pickle_remedy));
  OpenTensorFile file;
  file.path = path;
  Bytes size = 0;
  file.handle = open_to_read(path, tensor_remedy, size);
  std::string beginning(std::min<Bytes>(size, lfs_beginning_bytes), '\0');
  read_at(file.handle, path, 0, std::as_writable_bytes(std::span(beginning)));
  refuse_lfs_pointer(beginning, path);
  beginning.resize(std::min<Bytes>(size, 8));
  Bytes header = 0;
  for (std::size_t i = beginning.size(); i-- > 0;)
    header = header << 8U | static_cast<unsigned char>(beginning[i]);
  // A header that claims more than the file has, or more than the format allows, is refused from its first
  // 8 bytes.
  if (size >= 8 && header <= std::min<Bytes>(size - 8, 100'000'000)) {
    beginning.resize(8 + header);
    read_at(file.handle, path, 0, std::as_writable_bytes(std::span(beginning)));
  }
  file.header = parse_safetensors(beginning, size, path);
  return file;
}

// Prefixes that DistributedDataParallel, torch.compile and other modules around a model put before all of
// its names.
constexpr std::string_view wrappers[] = {"module.", "_orig_mod.", "model."};

// Returns the longest beginning of all names that consists of wrappers.
std::string_view common_wrapper(const std::vector<std::string_view>& names) {
  std::size_t length = 0;
  for (bool found = !names.empty(); found;) {
    found = false;
    for (const std::string_view wrapper : wrappers) {
      const auto has_it = [&](std::string_view name) { return name.substr(length).starts_with(wrapper); };
      if (!std::all_of(names.begin(), names.end(), has_it)) continue;
      length += wrapper.size();
      found = true;
      break;
    }
  }
  return names.empty() ? std::string_view() : names.front().substr(0, length);
}

// Returns a folder's file or index; for a config.json, that of its folder.
std::string found_in(const std::string& given) {
  std::error_code error;
  const bool config = fs::path(given).filename() == "config.json";
  const std::string folder = config ? fs::path(given).parent_path().string() : given;
  std::string path = folder.empty() ? "." : folder;
  if (!fs::is_directory(path, error)) return path;
  for (const char* name : {"model.safetensors", "model.safetensors.index.json"}) {
    const fs::path file = fs::path(path) / name;
    if (fs::exists(file, error)) return file.string();
  }
  for (const char* name : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
    if (fs::exists(fs::path(path) / name, error))
      throw InvalidInput(
          fmt::format("{}: this folder has no model.safetensors; its {} is {}", path, name, pickle_remedy));
  }
  throw InvalidInput(
      fmt::format("{}: this folder has neither model.safetensors nor model.safetensors.index.json; {}", path,
                  tensor_remedy));
}

}  // namespace

class TensorFiles::Implementation {
 public:
  explicit Implementation(const std::string& path) {
    const std::string file = found_in(path);
    if (file.ends_with(".json"))
      open_index(file);
    else
      files_.push_back(open_file(file));
    std::vector<std::string_view> names;
    for (const OpenTensorFile& open : files_)
      for (const StoredTensor& tensor : open.header.tensors) names.emplace_back(tensor.name);
    wrapper_ = common_wrapper(names);
    for (const OpenTensorFile& open : files_) {
      for (const StoredTensor& tensor : open.header.tensors) {
        if (!places_.emplace(unwrapped(tensor.name), Place{&tensor, &open}).second)
          throw InvalidInput(fmt::format("{}: tensor {} is in another file of the index too; {}", open.path,
                                         in_quotes(tensor.name), tensor_remedy));
      }
    }
  }

  struct Place {
    const StoredTensor* tensor;
    const OpenTensorFile* file;
  };
  // Places by tensor name without wrappers.
  const std::map<std::string_view, Place>& places() const { return places_; }

  void read(const StoredTensor& tensor, Bytes offset, std::span<std::byte> into) const {
    const auto found = places_.find(unwrapped(tensor.name));
    if (found == places_.end() || found->second.tensor->bytes < offset ||
        found->second.tensor->bytes - offset < into.size())
      throw InvalidInput(fmt::format("these files have no {} bytes at {} of tensor {}; read inside of one",
                                     into.size(), offset, in_quotes(tensor.name)));
    const auto& [stored, file] = found->second;
    read_at(file->handle, file->path, file->header.data_offset + stored->offset + offset, into);
  }

  const std::vector<OpenTensorFile>& files() const { return files_; }
  const std::string& index() const { return index_; }

 private:
  std::string_view unwrapped(std::string_view name) const {
    return name.starts_with(wrapper_) ? name.substr(wrapper_.size()) : name;
  }

  void open_index(const std::string& path) {
    index_ = read_small_file(path, most_index_bytes, tensor_remedy);
    const auto index = parse_safetensors_index(index_, path);
    std::map<std::string, std::size_t> counts;  // number of tensors by file
    for (const auto& [tensor, file] : index) ++counts[file];
    if (counts.size() > most_files)
      throw InvalidInput(fmt::format("{}: it names {} files; save the model in at most {}", path,
                                     counts.size(), most_files));
    files_.reserve(counts.size());
    for (const auto& [name, count] : counts) {
      files_.push_back(open_file((fs::path(path).parent_path() / name).string()));
      require_agreement(path, index, name, files_.back());
    }
    for (const auto& [tensor, file] : index) require_there(path, tensor, file);
  }

  static void require_agreement(const std::string& path, const std::map<std::string, std::string>& index,
                                const std::string& name, const OpenTensorFile& file) {
    for (const StoredTensor& tensor : file.header.tensors) {
      const auto entry = index.find(tensor.name);
      if (entry == index.end() || entry->second != name)
        throw InvalidInput(fmt::format("{}: {} has a tensor {} that weight_map does not place there; {}",
                                       path, name, in_quotes(tensor.name), tensor_remedy));
    }
  }

  void require_there(const std::string& path, const std::string& tensor, const std::string& name) {
    if (names_.empty()) {
      for (const OpenTensorFile& file : files_)
        for (const StoredTensor& stored : file.header.tensors) names_.push_back(stored.name);
      std::sort(names_.begin(), names_.end());
    }
    // A model may be saved with only one of its tied tables; the reader of the model checks that there
    // is one.
    if (!std::binary_search(names_.begin(), names_.end(), tensor) && !is_tied_name(tensor))
      throw InvalidInput(fmt::format("{}: weight_map places tensor {} in {}, which lacks it; {}", path,
                                     in_quotes(tensor), name, tensor_remedy));
  }

  std::vector<OpenTensorFile> files_;
  std::string index_;                    // text of the index
  std::string_view wrapper_;             // common beginning of all names
  std::vector<std::string_view> names_;  // sorted names in an index
  std::map<std::string_view, Place> places_;
};

TensorFiles::TensorFiles(const std::string& path) : implementation_(std::make_unique<Implementation>(path)) {}
TensorFiles::~TensorFiles() = default;
TensorFiles::TensorFiles(TensorFiles&&) noexcept = default;
TensorFiles& TensorFiles::operator=(TensorFiles&&) noexcept = default;

std::size_t TensorFiles::size() const { return implementation_->places().size(); }

const StoredTensor* TensorFiles::find(std::string_view name) const {
  const auto found = implementation_->places().find(name);
  return found == implementation_->places().end() ? nullptr : found->second.tensor;
}

std::vector<std::string_view> TensorFiles::names() const {
  std::vector<std::string_view> names;
  for (const auto& [name, place] : implementation_->places()) names.push_back(name);
  return names;
}

void TensorFiles::read(const StoredTensor& tensor, Bytes offset, std::span<std::byte> into) const {
  implementation_->read(tensor, offset, into);
}

std::vector<TensorFiles::File> TensorFiles::files() const {
  std::vector<File> files;
  for (const OpenTensorFile& open : implementation_->files())
    files.push_back({fs::path(open.path).filename().string(), &open.header});
  return files;
}

std::string TensorFiles::beginning(std::size_t file) const {
  const OpenTensorFile& open = implementation_->files().at(file);
  std::string text(open.header.data_offset, '\0');
  read_at(open.handle, open.path, 0, std::as_writable_bytes(std::span(text)));
  return text;
}

const std::string& TensorFiles::index() const { return implementation_->index(); }

}  // namespace stowage
