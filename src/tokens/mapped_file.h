// A file in memory, read page by page as it is looked at.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace stowage {

class MappedFile {
 public:
  MappedFile() = default;
  // Throws InvalidInput that names `path` and ends with `remedy` where it is no regular file that can be
  // read, or a pointer of Git LFS. The file must keep its length while it is mapped: a page that is gone ends
  // the program (SIGBUS).
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
