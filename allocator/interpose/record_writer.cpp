#include "allocator/interpose/record_writer.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

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

// Names of programs are anything: one line, one field.
std::array<char, longest_detail + 1> one_field(std::string_view text) {
  std::array<char, longest_detail + 1> field{};
  for (std::size_t i = 0; i < text.size() && i < longest_detail; ++i) {
    const char c = text[i];
    field[i] = c < ' ' || c > '~' || c == ',' || c == '"' ? '_' : c;
  }
  return field;
}

}  // namespace

RecordWriter::RecordWriter(std::string path, std::uint64_t start_ns)
    : path_(std::move(path)), start_ns_(start_ns), pid_(getpid()) {}

void RecordWriter::add(const RecordLine& line) {
  if (path_.empty()) return;
  if (buffer_.size() - used_ < longest_line) flush();
  const std::uint64_t now = now_ns();
  const auto detail = one_field(line.detail);
  const int length = std::snprintf(
      buffer_.data() + used_, longest_line, "%llu,%d,%ld,%.*s,%.*s,%d,%llu,0x%llx,%llu,%llu,%d,%s\n",
      static_cast<unsigned long long>(now > start_ns_ ? now - start_ns_ : 0), pid_, syscall(SYS_gettid),
      static_cast<int>(line.event.size()), line.event.data(), static_cast<int>(line.kind.size()),
      line.kind.data(), line.device, static_cast<unsigned long long>(line.stream),
      static_cast<unsigned long long>(line.address), static_cast<unsigned long long>(line.bytes),
      static_cast<unsigned long long>(line.live), line.result, detail.data());
  if (length > 0 && static_cast<std::size_t>(length) < longest_line)
    used_ += static_cast<std::size_t>(length);
  if (finished_) flush();
}

int RecordWriter::open_file() const {
  return path_.empty() ? -1 : open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
}

bool RecordWriter::can_append() const {
  const int file = open_file();
  if (file >= 0) close(file);
  return file >= 0;
}

// One write: lines of several processes do not mix.
void RecordWriter::flush_to(int file) {
  [[maybe_unused]] const ssize_t written = write(file, buffer_.data(), used_);
  used_ = 0;
}

void RecordWriter::flush() {
  if (used_ == 0) return;
  const int saved = errno;
  if (const int file = open_file(); file >= 0) {
    flush_to(file);
    close(file);
  }
  used_ = 0;
  errno = saved;
}

void RecordWriter::finish() {
  finished_ = true;
  flush();
}

void RecordWriter::start_again() {
  used_ = 0;
  finished_ = false;
  pid_ = getpid();
}

bool RecordWriter::in_own_process() const { return getpid() == pid_; }

}  // namespace stowage::interpose
