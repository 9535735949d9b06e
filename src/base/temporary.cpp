#include "src/base/temporary.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
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
#include <filesystem>
#include <system_error>

namespace stowage {

// Never freed, since a signal handler may be reading it; used again once nobody owns it.
struct Temporary::Entry {
  enum State : int { free, owned, on_disk };
  std::atomic<int> state{owned};
  int folder = -1;  // open as long as `state` is on_disk
  Kind kind = Kind::file;
  std::array<char, NAME_MAX + 1> name{};
  Entry* next = nullptr;
};

namespace {

std::atomic<Temporary::Entry*> entries{nullptr};

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

// The folder's files and the folder. As readdir is not async-signal-safe, this asks the kernel itself.
void remove_folder(int parent, const char* name) {
  const int folder = ::openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (folder < 0) return;
  alignas(dirent64) std::array<char, 4096> block;
  long count = 0;
  while ((count = ::syscall(SYS_getdents64, folder, block.data(), block.size())) > 0) {
    for (long at = 0; at < count;) {
      const auto* const file = reinterpret_cast<const dirent64*>(block.data() + at);
      ::unlinkat(folder, file->d_name, 0);
      at += file->d_reclen;
    }
  }
  ::close(folder);
  ::unlinkat(parent, name, AT_REMOVEDIR);
}

void remove(const Temporary::Entry& entry) {
  if (entry.kind == Temporary::Kind::folder)
    remove_folder(entry.folder, entry.name.data());
  else
    ::unlinkat(entry.folder, entry.name.data(), 0);
}

std::string hidden_name(std::string_view name) {
  constexpr std::string_view end = ".0123456789abcdef.part";
  std::uint64_t number = 0;
  if (::getrandom(&number, sizeof number, 0) != sizeof number) return {};
  return fmt::format("{}.{:016x}.part", name.substr(0, NAME_MAX - end.size()), number);
}

bool has_write_bit(int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) return false;
  if ((status.st_mode & 0222U) == 0) errno = EACCES;
  return (status.st_mode & 0222U) != 0;
}

// Whether a signal's default is not to end the process, or nothing can be done before it does.
bool is_left_alone(int signal) {
  constexpr std::array left_alone = {SIGKILL, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU,
                                     SIGCHLD, SIGCONT, SIGURG,  SIGWINCH};
  return std::find(left_alone.begin(), left_alone.end(), signal) != left_alone.end();
}

}  // namespace

Temporary::Temporary(const std::string& folder, std::string_view name, Kind kind) {
  FileHandle parent(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!parent || !has_write_bit(parent.get())) return;
  const std::string hidden = hidden_name(name);
  if (hidden.empty()) return;
  Entry* const entry = take_entry();
  entry->folder = parent.get();
  entry->kind = kind;
  entry->name[hidden.copy(entry->name.data(), NAME_MAX)] = '\0';
  entry->state = Entry::on_disk;  // before it is made: a signal may come at once
  const bool made =
      kind == Kind::folder
          ? ::mkdirat(parent.get(), hidden.c_str(), 0777) == 0
          : bool(file_ = FileHandle(::openat(parent.get(), hidden.c_str(),
                                             O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666)));
  if (!made) {
    entry->state = Entry::free;
    return;
  }
  parent.release();
  entry_ = entry;
  path_ = folder + '/' + hidden;
}

Temporary& Temporary::operator=(Temporary&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(file_, other.file_);
  std::swap(entry_, other.entry_);
  return *this;
}

bool Temporary::rename_to(const std::string& name) {
  if (::renameat(entry_->folder, entry_->name.data(), entry_->folder, name.c_str()) != 0) return false;
  // Nothing is there to be removed any more.
  entry_->name[0] = '\0';
  discard();
  return true;
}

void Temporary::discard() noexcept {
  file_.close();
  if (entry_ == nullptr) return;
  std::error_code error;
  if (entry_->name[0] != '\0') std::filesystem::remove_all(path_, error);
  entry_->state = Entry::owned;
  ::close(entry_->folder);
  entry_->state = Entry::free;
  entry_ = nullptr;
}

void end_by_signal(int signal) {
  for (const Temporary::Entry* entry = entries; entry != nullptr; entry = entry->next) {
    if (entry->state == Temporary::Entry::on_disk) remove(*entry);
  }
  // Comes when the handler returns; a fault comes again in any case.
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
