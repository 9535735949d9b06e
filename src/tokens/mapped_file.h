// A memory-mapped file, whose pages are read on first access.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace stowage {

class MappedFile {
 public:
  MappedFile() = default;
  // Throws InvalidInput that names `path` and ends with `remedy` if it is no readable regular file, or a
  // pointer of Git LFS. Requires that the file keeps its length while it is mapped: access to a lost page
  // ends the program (SIGBUS).
  MappedFile(const std::string& path, std::string_view remedy);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  // Valid as long as this object.
  std::string_view text() const { return {static_cast<const char*>(data_), size_}; }

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace stowage
