// Pointers of Git LFS: the text that stands in a file's place until the file is fetched.
#pragma once

#include <string>
#include <string_view>

#include "stowage/error.h"

namespace stowage {

// This many bytes tell a pointer from any other file.
inline constexpr std::size_t lfs_beginning_bytes = 64;

// Throws InvalidInput if a file that begins with `beginning` is a pointer.
inline void refuse_lfs_pointer(std::string_view beginning, const std::string& path) {
  if (beginning.starts_with("version https://git-lfs.github.com/spec/"))
    throw InvalidInput(
        path +
        ": this is a pointer of Git LFS, not the file itself; fetch it by 'git lfs pull' in its folder");
}

}  // namespace stowage
