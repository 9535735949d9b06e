// Files by descriptor: exact reads at an offset, errors that name the file.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "src/base/file_handle.h"
#include "stowage/bytes.h"

namespace stowage {

// Opens a regular file. `size`: set to the file's present size. Throws InvalidInput; `remedy` ends
// the message.
FileHandle open_to_read(const std::string& path, std::string_view remedy, Bytes& size);

// Reads exactly these bytes. Throws InvalidInput if the file ends before, Error if it cannot be read.
void read_at(const FileHandle& file, const std::string& path, Bytes offset, std::span<std::byte> into);

// Throws Error.
void sync_folder(const std::string& path);

// Returns the whole text of a file of at most `most` bytes. Throws InvalidInput, also for a pointer of
// Git LFS.
std::string read_small_file(const std::string& path, Bytes most, std::string_view remedy);

}  // namespace stowage
