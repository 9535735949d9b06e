#include <fmt/format.h>

#include "src/base/output_file.h"
#include "src/graph/json_field.h"
#include "stowage/error.h"
#include "stowage/safetensors.h"

namespace stowage {

class SafetensorsWriter::Implementation {
 public:
  Implementation(std::string path, SafetensorsHeader header, const std::string& beginning)
      : header_(std::move(header)) {
    const std::string text = beginning.empty() ? safetensors_beginning(header_) : beginning;
    file_ = OutputFile("", std::move(path), Writing::placed);
    file_.write(text);
  }

  const std::vector<StoredTensor>& tensors() const { return header_.tensors; }

  void write(std::size_t index, Bytes offset, std::span<const std::byte> value) {
    const StoredTensor& tensor = header_.tensors.at(index);
    if (offset > tensor.bytes || value.size() > tensor.bytes - offset)
      throw InvalidInput(fmt::format("{}: tensor {} has {} bytes; write none behind them", file_.path(),
                                     in_quotes(tensor.name), tensor.bytes));
    file_.write_at(header_.data_offset + tensor.offset + offset, value);
    written_ += value.size();
  }

  void commit() {
    const Bytes wanted = header_.file_bytes() - header_.data_offset;
    if (written_ != wanted)
      throw Error(fmt::format("{}: {} bytes of tensors were written of {}; write each once before the commit",
                              file_.path(), written_, wanted));
    file_.commit();
  }

 private:
  SafetensorsHeader header_;
  OutputFile file_;
  Bytes written_ = 0;
};

// transformers refuses files without the format.
SafetensorsWriter::SafetensorsWriter(std::string path, std::vector<StoredTensor> tensors)
    : SafetensorsWriter(std::move(path), SafetensorsHeader{std::move(tensors), {{"format", "pt"}}, 0}) {}
SafetensorsWriter::SafetensorsWriter(std::string path, SafetensorsHeader header, const std::string& beginning)
    : implementation_(std::make_unique<Implementation>(std::move(path), std::move(header), beginning)) {}
SafetensorsWriter::~SafetensorsWriter() = default;
const std::vector<StoredTensor>& SafetensorsWriter::tensors() const { return implementation_->tensors(); }
void SafetensorsWriter::write(std::size_t index, Bytes offset, std::span<const std::byte> value) {
  implementation_->write(index, offset, value);
}
void SafetensorsWriter::commit() { implementation_->commit(); }

}  // namespace stowage
