#include "src/base/temporary.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <vector>

namespace stowage {

// An entry is never freed, since a signal handler may be reading it; it is reused once nobody owns it.
struct Temporary::Entry {
  enum State : int { free, owned, on_disk };
  std::atomic<int> state{owned};
  int folder = -1;            // parent folder, open as long as `state` is on_disk
  std::atomic<int> self{-1};  // a folder itself, open so that its removal needs no new descriptor
  std::array<char, NAME_MAX + 1> name{};
  Entry* next = nullptr;
};

namespace {

std::atomic<Temporary::Entry*> entries{nullptr};

constexpr int most_attempts = 100;

Temporary::Entry* take_entry() {
  using Entry = Temporary::Entry;
  for (Entry* entry = entries; entry != nullptr; entry = entry->next) {
    int expected = Entry::free;
    if (entry->state.compare_exchange_strong(expected, Entry::owned)) return entry;
  }
  auto* const entry = new Entry;
  entry->next = entries;
  while (!entries.compare_exchange_weak(entry->next, entry)) {
  }
  return entry;
}

constexpr int deepest = 8;  // depth of folders in a folder that are removed with it

bool is_dots(const char* name) { return std::strcmp(name, ".") == 0 || std::strcmp(name, "..") == 0; }

// Removes everything in an open folder. It reads the folder by a system call, as readdir is
// not async-signal-safe.
void clear_folder(int folder, int depth = 0) {
  alignas(dirent64) std::array<char, 4096> block;
  ::lseek(folder, 0, SEEK_SET);
  long count = 0;
  while ((count = ::syscall(SYS_getdents64, folder, block.data(), block.size())) > 0) {
    for (long at = 0; at < count;) {
      const auto* const file = reinterpret_cast<const dirent64*>(block.data() + at);
      at += file->d_reclen;
      if (is_dots(file->d_name) || ::unlinkat(folder, file->d_name, 0) == 0 || depth == deepest) continue;
      const int inner = ::openat(folder, file->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
      if (inner < 0) continue;
      clear_folder(inner, depth + 1);
      ::close(inner);
      ::unlinkat(folder, file->d_name, AT_REMOVEDIR);
    }
  }
}

void remove(const Temporary::Entry& entry) {
  const int self = entry.self;
  if (self >= 0) clear_folder(self);
  if (::unlinkat(entry.folder, entry.name.data(), 0) != 0)
    ::unlinkat(entry.folder, entry.name.data(), AT_REMOVEDIR);
}

constexpr std::string_view hidden_end = ".0123456789abcdef.part";

std::string_view hidden_begin(std::string_view name) { return name.substr(0, NAME_MAX - hidden_end.size()); }

std::string hidden_name(std::string_view name) {
  std::uint64_t number = 0;
  if (::getrandom(&number, sizeof number, 0) != sizeof number) return {};
  return fmt::format("{}.{:016x}.part", hidden_begin(name), number);
}

bool has_write_bit(int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) return false;
  if ((status.st_mode & 0222U) == 0) errno = EACCES;
  return (status.st_mode & 0222U) != 0;
}

bool is_hidden_name(std::string_view found, std::string_view name) {
  const std::string_view begin = hidden_begin(name);
  if (found.size() != begin.size() + hidden_end.size() || !found.starts_with(begin)) return false;
  const std::string_view end = found.substr(begin.size());
  return end.front() == '.' && end.ends_with(".part") &&
         end.substr(1, 16).find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// Whether the open file still has its name in `folder`.
bool has_name(int descriptor, int folder, const char* name) {
  struct stat held {
  }, there{};
  return ::fstat(descriptor, &held) == 0 && ::fstatat(folder, name, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
         held.st_dev == there.st_dev && held.st_ino == there.st_ino;
}

bool lock(int descriptor, int how) {
  int result = 0;
  while ((result = ::flock(descriptor, how)) != 0 && errno == EINTR) {
  }
  return result == 0;
}

// Removes a file or folder that a killed process may have left behind, unless somebody has locked it.
void remove_if_left(int folder, const char* name) {
  FileHandle found(::openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat status {};
  if (!found || ::fstat(found.get(), &status) != 0 || status.st_uid != ::geteuid()) return;
  const bool is_folder = S_ISDIR(status.st_mode);
  if (!is_folder && !S_ISREG(status.st_mode)) return;
  if (!lock(found.get(), LOCK_EX | LOCK_NB) || !has_name(found.get(), folder, name)) return;
  if (is_folder) clear_folder(found.get());
  ::unlinkat(folder, name, is_folder ? AT_REMOVEDIR : 0);
}

// Removes the files and folders of this name that killed processes have left.
void remove_left_behind(int folder, std::string_view name) {
  const int again = ::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (again < 0) return;
  DIR* const listing = ::fdopendir(again);
  if (listing == nullptr) {
    ::close(again);
    return;
  }
  std::vector<std::string> found;
  while (const dirent* const entry = ::readdir(listing)) {
    if (is_hidden_name(entry->d_name, name)) found.emplace_back(entry->d_name);
  }
  ::closedir(listing);
  for (const std::string& one : found) remove_if_left(folder, one.c_str());
}

// Whether a signal by default does not end the process, or cannot be handled.
bool is_left_alone(int signal) {
  constexpr std::array left_alone = {SIGKILL, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU,
                                     SIGCHLD, SIGCONT, SIGURG,  SIGWINCH};
  return std::find(left_alone.begin(), left_alone.end(), signal) != left_alone.end();
}

}  // namespace

Temporary::Temporary(const std::string& folder, std::string_view name, Kind kind) {
  FileHandle parent(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!parent || !has_write_bit(parent.get())) return;
  remove_left_behind(parent.get(), name);
  make(folder, std::move(parent), name, kind);
}

void Temporary::make(const std::string& folder, FileHandle parent, std::string_view name, Kind kind) {
  // Another process may remove the new file as left behind before it is locked: then make one more.
  for (int attempt = 0; attempt < most_attempts; ++attempt) {
    const std::string hidden = hidden_name(name);
    if (hidden.empty()) return;
    Entry* const entry = take_entry();
    entry->folder = parent.get();
    entry->self = -1;
    entry->name[hidden.copy(entry->name.data(), NAME_MAX)] = '\0';
    entry->state = Entry::on_disk;  // set before the file is made: a signal may come at once
    FileHandle made;
    if (kind == Kind::file)
      made = FileHandle(
          ::openat(parent.get(), hidden.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
    else if (::mkdirat(parent.get(), hidden.c_str(), 0777) == 0)
      made =
          FileHandle(::openat(parent.get(), hidden.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    const int reason = errno;
    const bool there =
        made && (!lock(made.get(), LOCK_EX) || has_name(made.get(), parent.get(), hidden.c_str()));
    if (!there) {
      if (kind == Kind::folder) ::unlinkat(parent.get(), hidden.c_str(), AT_REMOVEDIR);
      entry->state = Entry::free;
      errno = reason;
      if (!made && (kind == Kind::file || reason != ENOENT)) return;
      continue;
    }
    if (kind == Kind::folder) {
      entry->self = made.release();
    } else {
      lock_ = FileHandle(::fcntl(made.get(), F_DUPFD_CLOEXEC, 0));
      file_ = std::move(made);
    }
    parent.release();
    entry_ = entry;
    path_ = fmt::format("{}/{}", folder, hidden);
    return;
  }
}

Temporary& Temporary::operator=(Temporary&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(file_, other.file_);
  std::swap(lock_, other.lock_);
  std::swap(entry_, other.entry_);
  return *this;
}

bool Temporary::rename_to(const std::string& name) {
  if (::renameat(entry_->folder, entry_->name.data(), entry_->folder, name.c_str()) != 0) return false;
  // The file has its own name now: a signal handler must not remove it.
  entry_->name[0] = '\0';
  discard();
  return true;
}

void Temporary::discard() noexcept {
  file_.close();
  if (entry_ == nullptr) return;
  if (entry_->name[0] != '\0') remove(*entry_);
  entry_->state = Entry::owned;
  lock_.close();
  if (entry_->self >= 0) ::close(entry_->self);
  ::close(entry_->folder);
  entry_->state = Entry::free;
  entry_ = nullptr;
}

void end_by_signal(int signal) {
  for (const Temporary::Entry* entry = entries; entry != nullptr; entry = entry->next) {
    if (entry->state == Temporary::Entry::on_disk) remove(*entry);
  }
  // The raised signal arrives when the handler returns; a fault recurs in any case.
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void remove_temporaries_at_signals() {
  for (int signal = 1; signal <= SIGRTMAX; ++signal) {
    struct sigaction action {};
    if (is_left_alone(signal) || ::sigaction(signal, nullptr, &action) != 0) continue;
    if (action.sa_handler != SIG_DFL) continue;
    action.sa_handler = signal == SIGXFSZ ? [](int) {} : end_by_signal;
    action.sa_flags = SA_RESTART;
    ::sigaction(signal, &action, nullptr);
  }
}

}  // namespace stowage
