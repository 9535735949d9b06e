// safetensors: named tensors in one file, or in several with an index, read and written by offset.
//
// The format (https://github.com/huggingface/safetensors): the header's length in 8 little-endian bytes; the
// header, a JSON object of {"name": {"dtype", "shape", "data_offsets": [begin, end]}} and maybe
// "__metadata__", an object of strings; then the tensors' bytes, without holes. Several files are named by
// `model.safetensors.index.json`, whose "weight_map" says which file holds which tensor.
//
// Files are taken for hostile: any error is InvalidInput that names the file, the tensor and what to do, and
// is found before any tensor is read. Memory is of the order of the headers, never of what they claim. Files
// are read by their offsets, not mapped: a file that shrinks meanwhile is an error and no signal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stowage/bytes.h"

namespace stowage {

// Element types of files; all little-endian.
enum class StoredType : std::uint8_t {
  boolean,
  u8,
  i8,
  f8_e5m2,
  f8_e4m3,
  u16,
  i16,
  f16,
  bf16,
  u32,
  i32,
  f32,
  u64,
  i64,
  f64,
};
Bytes size_of(StoredType type);               // bytes per element
std::string_view to_string(StoredType type);  // the file's word: "F32"

struct StoredTensor {
  std::string name;
  StoredType type = StoredType::f32;
  std::vector<std::int64_t> shape;  // row-major, outermost first; {} is a scalar
  Bytes offset = 0;                 // position of the first byte, from the end of the header
  Bytes bytes = 0;
  friend bool operator==(const StoredTensor&, const StoredTensor&) = default;
};

struct SafetensorsHeader {
  std::vector<StoredTensor> tensors;  // ordered by offset; their bytes follow one another
  std::map<std::string, std::string> metadata;
  Bytes data_offset = 0;  // position of the first tensor's bytes in the file
  Bytes file_bytes() const;
};

// Returns the header of a file of `file_bytes`. `beginning` holds at least the header, or all of the file.
// `file` is for messages. Throws InvalidInput.
SafetensorsHeader parse_safetensors(std::string_view beginning, Bytes file_bytes, std::string_view file);

// Returns the bytes before the tensors, padded by spaces to a multiple of 8. Sets offsets and byte counts
// from types and shapes; keeps order and metadata. Throws InvalidInput for names that are not unique or no
// UTF-8, and shapes that overflow.
std::string safetensors_beginning(SafetensorsHeader& header);

// Returns for each tensor of the index the name of its file, in the index's own folder.
std::map<std::string, std::string> parse_safetensors_index(std::string_view text, std::string_view file);
std::string safetensors_index(const std::map<std::string, std::string>& files, Bytes total_bytes);
// Returns the text of an index with another size and the places of more tensors. Requires an index that
// parse_safetensors_index takes.
std::string changed_safetensors_index(std::string_view text, const std::map<std::string, std::string>& files,
                                      Bytes total_bytes);

// The tensors of one file, or of all files of an index, open for reading. Not thread-safe.
class TensorFiles {
 public:
  // Opens a file, an index (".json"), or a folder that holds `model.safetensors` or, else, its index. Every
  // header is read and checked, and each tensor of the index is in its file and named by the index. At most
  // 512 files. Throws InvalidInput.
  explicit TensorFiles(const std::string& path);
  ~TensorFiles();
  TensorFiles(TensorFiles&&) noexcept;
  TensorFiles& operator=(TensorFiles&&) noexcept;

  std::size_t size() const;                               // number of all tensors
  const StoredTensor* find(std::string_view name) const;  // null: no tensor has that name
  std::vector<std::string_view> names() const;            // sorted
  // Reads a tensor's bytes from `offset` on straight into `into`. Throws InvalidInput if the tensor is not of
  // these files, has no such bytes, or the file has become shorter; Error if reading fails.
  void read(const StoredTensor& tensor, Bytes offset, std::span<std::byte> into) const;

  struct File {
    std::string name;                 // without its folder
    const SafetensorsHeader* header;  // has the tensors that `find` returns
  };
  std::vector<File> files() const;  // sorted by name
  // Reads the bytes before the tensors of a file of files(). Throws as `read`.
  std::string beginning(std::size_t file) const;
  const std::string& index() const;  // text of the index; empty: one file without an index

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

// Writes a file piece by piece, in any order, under a temporary name. Not thread-safe.
class SafetensorsWriter {
 public:
  // Writes the header. `tensors`: name, type and shape; the rest is set. Throws InvalidInput as
  // safetensors_beginning does, or where no file can be made; Error when writing fails.
  SafetensorsWriter(std::string path, std::vector<StoredTensor> tensors);
  // `beginning`: the header's bytes, as a file with these tensors has them; empty: they are made from the
  // header's tensors and metadata.
  SafetensorsWriter(std::string path, SafetensorsHeader header, const std::string& beginning = {});
  ~SafetensorsWriter();  // removes the file unless it was committed
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  const std::vector<StoredTensor>& tensors() const;
  // `index` counts the tensors as they were given. Throws Error, or InvalidInput for bytes outside of the
  // tensor.
  void write(std::size_t index, Bytes offset, std::span<const std::byte> value);
  // Flushes the file to the disk and gives it its name. Requires that every byte was written once. Throws
  // Error.
  void commit();

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace stowage
