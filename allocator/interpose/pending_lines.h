// Lines of a process that are not in the record yet. The lines are in a file of one page that is mapped
// shared, so the kernel keeps them whatever ends the process: a crash, SIGKILL, or exec.
//
// A process has a file of its own in a folder of `stowage run`, named after its process id:
//   1. A process maps its file when it has its first line, and adds each line to the page.
//   2. The lines are appended to the record when the page is full, and at the process's end.
// 3. A program that replaces the process's program by exec finds the file, and first appends the lines in it.
// 4. `stowage run` appends at the end the lines in the files of processes that are gone.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace stowage::interpose {

struct PendingLines {
  static constexpr std::size_t capacity = 4096 - 3 * sizeof(std::uint32_t);

  std::atomic<std::uint32_t> used{0};
  std::atomic<std::uint32_t> moving{0};  // 1: `text` is being appended to the record
  std::atomic<std::uint32_t> lost{0};    // 1: lines could not be appended
  std::array<char, capacity> text{};

  // Appends the lines to `record`, a descriptor opened with O_APPEND; -1 loses them. If a kill cut an earlier
  // move short, lines that `record_path` has already are left out.
  void move_to(int record, const std::string& record_path);
};
static_assert(sizeof(PendingLines) == 4096 && std::atomic<std::uint32_t>::is_always_lock_free);

// Returns the path of this process's file in `folder`.
std::string pending_file(const std::string& folder);
// Returns the process id in such a file's name; 0: the name is another file's.
int process_of_pending_file(std::string_view name);

// Maps a file of pending lines, and creates it if `make`. Returns null on failure.
PendingLines* map_pending_lines(const std::string& path, bool make);
void unmap_pending_lines(PendingLines* lines);

}  // namespace stowage::interpose
