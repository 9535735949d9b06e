#include "allocator/interpose/record_writer.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <utility>

namespace stowage::interpose {
namespace {

constexpr std::size_t longest_line = 512;
constexpr std::size_t longest_detail = 200;

std::uint64_t now_ns() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(time.tv_nsec);
}

// Makes any text, such as a program's name, fit into one field of one line.
std::array<char, longest_detail + 1> one_field(std::string_view text) {
  std::array<char, longest_detail + 1> field{};
  for (std::size_t i = 0; i < text.size() && i < longest_detail; ++i) {
    const char c = text[i];
    field[i] = c < ' ' || c > '~' || c == ',' || c == '"' ? '_' : c;
  }
  return field;
}

}  // namespace

RecordWriter::RecordWriter(std::string path, std::uint64_t start_ns, std::string folder)
    : path_(std::move(path)), folder_(std::move(folder)), start_ns_(start_ns), pid_(getpid()) {}

RecordWriter::~RecordWriter() {
  if (is_mapped_) unmap_pending_lines(lines_);
  unmap_pending_lines(parents_);
}

// Called with the first line. Lines in the page are from the program whose place this one took.
void RecordWriter::take_page() {
  if (std::exchange(has_asked_, true) || folder_.empty()) return;
  const int saved = errno;
  PendingLines* const page = map_pending_lines(pending_file(folder_), true);
  errno = saved;
  if (page == nullptr) return;
  lines_ = page;
  is_mapped_ = true;
  flush();
}

void RecordWriter::add(const RecordLine& line) {
  put(line);
  if (!waits()) flush();
}

void RecordWriter::put(const RecordLine& line) {
  if (path_.empty()) return;
  take_page();
  if (PendingLines::capacity - lines_->used < longest_line) flush();
  const std::size_t used = lines_->used;
  const std::uint64_t now = now_ns();
  const auto detail = one_field(line.detail);
  const int length = std::snprintf(
      lines_->text.data() + used, longest_line, "%llu,%d,%ld,%.*s,%.*s,%d,%llu,0x%llx,%llu,%llu,%d,%s\n",
      static_cast<unsigned long long>(now > start_ns_ ? now - start_ns_ : 0), pid_, syscall(SYS_gettid),
      static_cast<int>(line.event.size()), line.event.data(), static_cast<int>(line.kind.size()),
      line.kind.data(), line.device, static_cast<unsigned long long>(line.stream),
      static_cast<unsigned long long>(line.address), static_cast<unsigned long long>(line.bytes),
      static_cast<unsigned long long>(line.live), line.result, detail.data());
  if (length > 0 && static_cast<std::size_t>(length) < longest_line)
    lines_->used.store(static_cast<std::uint32_t>(used) + static_cast<std::uint32_t>(length),
                       std::memory_order_release);
}

int RecordWriter::open_file() const {
  return path_.empty() ? -1 : open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
}

bool RecordWriter::can_append() const {
  const int file = open_file();
  if (file >= 0) close(file);
  return file >= 0;
}

// Lines are appended in one write, so that those of several processes do not mix.
void RecordWriter::flush_to(int file) {
  lines_->move_to(file, path_);
  if (!is_mapped_ && parents_ != nullptr && lines_->lost != 0) parents_->lost = 1;
}

void RecordWriter::flush() {
  if (lines_->used == 0) return;
  const int saved = errno;
  const int file = open_file();
  flush_to(file);
  if (file >= 0) close(file);
  errno = saved;
}

void RecordWriter::finish() {
  finished_ = true;
  flush();
  // A page that reports lost lines stays.
  const int saved = errno;
  if (is_mapped_ && lines_->lost == 0) unlink(pending_file(folder_).c_str());
  errno = saved;
}

void RecordWriter::start_again() {
  if (is_mapped_) {
    unmap_pending_lines(parents_);
    parents_ = lines_;
    lines_ = &own_;
  }
  own_.used = own_.moving = 0;
  is_mapped_ = has_asked_ = finished_ = false;
  pid_ = getpid();
}

bool RecordWriter::in_own_process() const { return getpid() == pid_; }

}  // namespace stowage::interpose
