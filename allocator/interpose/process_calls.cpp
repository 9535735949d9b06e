// Calls by which a process leaves the reach of `stowage run`: it starts a program in an environment without
// the libraries or with another record, or changes to a user who may not write the record. Such calls are let
// through, and the record notes them. System calls that a program makes without libc are not seen.
#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "allocator/interpose/driver.h"
#include "allocator/interpose/process.h"

namespace stowage::interpose {
namespace {

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(real_dlsym(RTLD_NEXT, name));
}

enum class Place { watched, elsewhere, unwatched };

// Returns where calls of a program with this environment are recorded: here, in the record of a `stowage run`
// that this one's program makes, or nowhere.
Place place_of(char* const* environment) {
  constexpr std::string_view record = "STOWAGE_RUN_RECORD=";
  bool library = false, settings = false, here = true;
  for (char* const* entry = environment; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    library = library || (text.starts_with("LD_PRELOAD=") && text.find("libstowage_preload.so") != text.npos);
    settings = settings || text.starts_with("STOWAGE_RUN_START=");
    if (text.starts_with(record)) here = ledger().records_to(text.substr(record.size()));
  }
  if (!library || !settings) return Place::unwatched;
  return here ? Place::watched : Place::elsewhere;
}

bool can_start(const char* path) { return faccessat(AT_FDCWD, path, X_OK, AT_EACCESS) == 0; }

// Allocates nothing: this may be a child of fork in a program with threads.
bool found_in_path(const char* file) {
  if (std::strchr(file, '/') != nullptr) return can_start(file);
  const char* const list = std::getenv("PATH");
  std::string_view rest = list == nullptr ? "/bin:/usr/bin" : list;
  while (true) {
    const auto end = rest.find(':');
    const std::string_view folder = rest.substr(0, end);
    char path[PATH_MAX];
    const int length = std::snprintf(path, sizeof(path), "%.*s/%s", static_cast<int>(folder.size()),
                                     folder.empty() ? "." : folder.data(), file);
    if (length > 0 && static_cast<std::size_t>(length) < sizeof(path) && can_start(path)) return true;
    if (end == std::string_view::npos) return false;
    rest.remove_prefix(end + 1);
  }
}

void note(Place place, const char* path) {
  if (place == Place::watched) return;
  const char* const slash = std::strrchr(path, '/');
  ledger().note_leaving(place == Place::elsewhere ? "elsewhere" : "unwatched",
                        slash == nullptr ? path : slash + 1);
}

// Called before another program takes this one's place: afterwards nobody could write the line.
void starts(const char* path, char* const* environment, bool found) {
  const int saved = errno;
  if (found) note(place_of(environment), path);
  errno = saved;
}

using Spawn = int(pid_t*, const char*, const posix_spawn_file_actions_t*, const posix_spawnattr_t*,
                  char* const*, char* const*);

int spawn(const char* name, pid_t* process, const char* path, const posix_spawn_file_actions_t* actions,
          const posix_spawnattr_t* attributes, char* const* words, char* const* environment) {
  const int result = next<Spawn>(name)(process, path, actions, attributes, words, environment);
  if (result == 0) note(place_of(environment), path);
  return result;
}

template <class... Users>
int change_user(const char* name, Users... users) {
  const int record = ledger().open_record();
  const int result = next<int(Users...)>(name)(users...);
  const int saved = errno;
  if (result == 0) ledger().user_changed(record);
  if (record >= 0) close(record);
  errno = saved;
  return result;
}

}  // namespace
}  // namespace stowage::interpose

using namespace stowage::interpose;  // NOLINT(google-build-using-namespace)

extern "C" {

int execve(const char* path, char* const* words, char* const* environment) noexcept {
  starts(path, environment, can_start(path));
  return next<int(const char*, char* const*, char* const*)>("execve")(path, words, environment);
}

int execv(const char* path, char* const* words) noexcept {
  starts(path, environ, can_start(path));
  return next<int(const char*, char* const*)>("execv")(path, words);
}

int execvpe(const char* file, char* const* words, char* const* environment) noexcept {
  starts(file, environment, found_in_path(file));
  return next<int(const char*, char* const*, char* const*)>("execvpe")(file, words, environment);
}

int execvp(const char* file, char* const* words) noexcept {
  starts(file, environ, found_in_path(file));
  return next<int(const char*, char* const*)>("execvp")(file, words);
}

int posix_spawn(pid_t* process, const char* path, const posix_spawn_file_actions_t* actions,
                const posix_spawnattr_t* attributes, char* const* words, char* const* environment) {
  return spawn("posix_spawn", process, path, actions, attributes, words, environment);
}

int posix_spawnp(pid_t* process, const char* path, const posix_spawn_file_actions_t* actions,
                 const posix_spawnattr_t* attributes, char* const* words, char* const* environment) {
  return spawn("posix_spawnp", process, path, actions, attributes, words, environment);
}

int setuid(uid_t user) noexcept { return change_user("setuid", user); }
int seteuid(uid_t user) noexcept { return change_user("seteuid", user); }
int setreuid(uid_t real, uid_t effective) noexcept { return change_user("setreuid", real, effective); }
int setresuid(uid_t real, uid_t effective, uid_t kept) noexcept {
  return change_user("setresuid", real, effective, kept);
}
}
