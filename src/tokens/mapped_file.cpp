#include "src/tokens/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "src/base/lfs_pointer.h"
#include "stowage/error.h"

namespace stowage {
namespace {

class OpenedFile {
 public:
  // Opens without waiting for a writer if the path is a pipe.
  explicit OpenedFile(const std::string& path)
      : descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  OpenedFile(const OpenedFile&) = delete;
  OpenedFile& operator=(const OpenedFile&) = delete;
  ~OpenedFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

}  // namespace

// Delegates to the default constructor, so that the destructor unmaps the file if this throws.
MappedFile::MappedFile(const std::string& path, std::string_view remedy) : MappedFile() {
  const auto refuse = [&](const std::string& why) {
    throw InvalidInput(fmt::format("cannot read '{}': {}; {}", path, why, remedy));
  };
  const OpenedFile file(path);
  struct stat facts {};
  if (file.descriptor() < 0 || ::fstat(file.descriptor(), &facts) != 0) refuse(std::strerror(errno));
  if (!S_ISREG(facts.st_mode)) refuse("it is no regular file");
  size_ = static_cast<std::size_t>(facts.st_size);
  if (size_ == 0) return;  // nothing can be mapped
  data_ = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.descriptor(), 0);
  if (data_ == MAP_FAILED) {
    data_ = nullptr;
    refuse(std::strerror(errno));
  }
  refuse_lfs_pointer(text().substr(0, lfs_beginning_bytes), path);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

}  // namespace stowage
