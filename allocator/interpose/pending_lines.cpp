#include "allocator/interpose/pending_lines.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>

namespace stowage::interpose {
namespace {

// The fields of a line that no other line has: time, process and thread.
std::string_view name_of_line(std::string_view line) {
  std::size_t end = 0;
  for (int field = 0; field < 3 && end != line.npos; ++field) end = line.find(',', end) + 1;
  return line.substr(0, end);
}

// Returns how much of `text` the file has already, from the first line of `text` on, as far as both agree.
std::size_t length_in_file(const std::string& path, std::string_view text) {
  const std::string_view name = name_of_line(text);
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0 || name.empty()) return 0;
  std::string window;
  std::array<char, 4096> block{};
  std::size_t known = 0;
  for (ssize_t count = 0; (count = read(file, block.data(), block.size())) > 0;) {
    window.append(block.data(), static_cast<std::size_t>(count));
    if (const auto at = window.find(name); at != window.npos) {
      const std::string_view there = std::string_view(window).substr(at, text.size());
      known = static_cast<std::size_t>(std::mismatch(there.begin(), there.end(), text.begin()).first -
                                       there.begin());
      window.erase(0, at);
      if (window.size() >= text.size()) break;
    } else if (window.size() > name.size()) {
      window.erase(0, window.size() - name.size());
    }
  }
  close(file);
  return known;
}

bool append_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(file, text.data(), text.size());
    if (written <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

// The number of the process's namespace: process ids are unique in one namespace alone.
unsigned long long pid_namespace() {
  struct stat status {};
  return stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

}  // namespace

void PendingLines::move_to(int record, const std::string& record_path) {
  const std::size_t length = std::min<std::size_t>(used.load(), capacity);
  std::string_view rest(text.data(), length);
  std::string_view cut;
  if (moving.load() != 0) {
    const std::size_t there = length_in_file(record_path, rest);
    const bool lacks_end = there < rest.size() && rest[there] == '\n';
    const std::size_t whole = lacks_end ? there : rest.substr(0, there).rfind('\n') + 1;
    rest.remove_prefix(whole);
    // A line that the record has only a first part of is written again in full, in a line of its own.
    if (there > whole) cut = "\n";
  }
  moving = 1;
  if (!rest.empty() && (record < 0 || !append_all(record, cut) || !append_all(record, rest))) lost = 1;
  used = 0;
  moving = 0;
}

std::string pending_file(const std::string& folder) {
  std::array<char, 64> name{};
  std::snprintf(name.data(), name.size(), "/%d-%llu", getpid(), pid_namespace());
  return folder + name.data();
}

int process_of_pending_file(std::string_view name) {
  int process = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), process);
  return error == std::errc() && end != name.data() + name.size() && *end == '-' && process > 0 ? process : 0;
}

PendingLines* map_pending_lines(const std::string& path, bool make) {
  const int file =
      open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | (make ? O_CREAT : 0), S_IRUSR | S_IWUSR);
  if (file < 0) return nullptr;
  // A page without a block on the disk would end the process when it is written to.
  void* page = MAP_FAILED;
  struct stat status {};
  if (make ? posix_fallocate(file, 0, sizeof(PendingLines)) == 0
           : fstat(file, &status) == 0 && status.st_size >= static_cast<off_t>(sizeof(PendingLines)))
    page = mmap(nullptr, sizeof(PendingLines), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  return page == MAP_FAILED ? nullptr : static_cast<PendingLines*>(page);
}

void unmap_pending_lines(PendingLines* lines) {
  if (lines != nullptr) munmap(lines, sizeof(PendingLines));
}

}  // namespace stowage::interpose
