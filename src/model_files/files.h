// Files by descriptor: exact reads and writes at an offset, errors that name the file.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "stowage/bytes.h"

namespace stowage {

// Owns a descriptor; -1: none.
class FileHandle {
 public:
  explicit FileHandle(int descriptor = -1) : descriptor_(descriptor) {}
  FileHandle(FileHandle&& other) noexcept;
  FileHandle& operator=(FileHandle&& other) noexcept;
  ~FileHandle() { close(); }

  int get() const { return descriptor_; }
  bool close();  // whether the system says that all was well

 private:
  int descriptor_;
};

// A regular file. `size`: of it now. Throws InvalidInput; `remedy` ends the message.
FileHandle open_to_read(const std::string& path, std::string_view remedy, Bytes& size);

// Exactly these bytes. InvalidInput where the file ends before, Error where it cannot be read.
void read_at(const FileHandle& file, const std::string& path, Bytes offset, std::span<std::byte> into);

// Throws Error.
void write_at(const FileHandle& file, const std::string& path, Bytes offset,
              std::span<const std::byte> value);
void sync_file(const FileHandle& file, const std::string& path);
void sync_folder(const std::string& path);

// All of a text of at most `most` bytes. Throws InvalidInput.
std::string read_small_file(const std::string& path, Bytes most, std::string_view remedy);
// To the disk. Throws Error.
void write_small_file(const std::string& path, std::string_view text);

}  // namespace stowage
