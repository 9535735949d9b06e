// Git LFS: what it leaves in a file's place until the file is fetched.
#pragma once

#include <string>
#include <string_view>

#include "stowage/error.h"

namespace stowage {

// As many bytes as tell it from any other file.
inline constexpr std::size_t lfs_beginning_bytes = 64;

// Throws InvalidInput where a file that begins so is one.
inline void refuse_lfs_pointer(std::string_view beginning, const std::string& path) {
  if (beginning.starts_with("version https://git-lfs.github.com/spec/"))
    throw InvalidInput(
        path +
        ": this is a pointer of Git LFS, not the file itself; fetch it by 'git lfs pull' in its folder");
}

}  // namespace stowage
