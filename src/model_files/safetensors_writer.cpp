#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "src/model_files/files.h"
#include "src/model_files/strict_json.h"
#include "stowage/error.h"
#include "stowage/safetensors.h"

namespace stowage {

class SafetensorsWriter::Implementation {
 public:
  Implementation(std::string path, std::vector<StoredTensor> tensors)
      : path_(std::move(path)), temporary_(fmt::format("{}.{}.part", path_, ::getpid())) {
    header_.tensors = std::move(tensors);
    header_.metadata = {{"format", "pt"}};  // transformers refuses files without it
    const std::string beginning = safetensors_beginning(header_);
    file_ = FileHandle(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (file_.get() < 0)
      throw InvalidInput(fmt::format("{}: cannot be written ({}); name a file in a writable folder", path_,
                                     std::strerror(errno)));
    try {
      write_at(file_, path_, 0, std::as_bytes(std::span(beginning)));
    } catch (...) {
      discard();
      throw;
    }
  }
  ~Implementation() { discard(); }
  Implementation(const Implementation&) = delete;
  Implementation& operator=(const Implementation&) = delete;

  const std::vector<StoredTensor>& tensors() const { return header_.tensors; }

  void write(std::size_t index, Bytes offset, std::span<const std::byte> value) {
    const StoredTensor& tensor = header_.tensors.at(index);
    if (offset > tensor.bytes || value.size() > tensor.bytes - offset)
      throw InvalidInput(fmt::format("{}: tensor {} has {} bytes; write none behind them", path_,
                                     in_quotes(tensor.name), tensor.bytes));
    write_at(file_, path_, header_.data_offset + tensor.offset + offset, value);
    written_ += value.size();
  }

  void commit() {
    const Bytes wanted = header_.file_bytes() - header_.data_offset;
    if (written_ != wanted)
      throw Error(fmt::format("{}: {} bytes of tensors were written of {}; write each once before the commit",
                              path_, written_, wanted));
    sync_file(file_, path_);
    if (!file_.close() || std::rename(temporary_.c_str(), path_.c_str()) != 0)
      throw Error(fmt::format("{}: writing failed ({}); make room there or name another file", path_,
                              std::strerror(errno)));
    temporary_.clear();
  }

 private:
  void discard() noexcept {
    file_.close();
    if (!temporary_.empty()) std::remove(temporary_.c_str());
  }

  std::string path_;
  std::string temporary_;  // remove this unless committed
  SafetensorsHeader header_;
  FileHandle file_;
  Bytes written_ = 0;
};

SafetensorsWriter::SafetensorsWriter(std::string path, std::vector<StoredTensor> tensors)
    : implementation_(std::make_unique<Implementation>(std::move(path), std::move(tensors))) {}
SafetensorsWriter::~SafetensorsWriter() = default;
const std::vector<StoredTensor>& SafetensorsWriter::tensors() const { return implementation_->tensors(); }
void SafetensorsWriter::write(std::size_t index, Bytes offset, std::span<const std::byte> value) {
  implementation_->write(index, offset, value);
}
void SafetensorsWriter::commit() { implementation_->commit(); }

}  // namespace stowage
