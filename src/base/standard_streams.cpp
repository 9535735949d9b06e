#include "src/base/standard_streams.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "src/base/file_handle.h"
#include "stowage/error.h"

namespace stowage {

void keep_standard_streams() {
  for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream) {
    if (::fcntl(stream, F_GETFD) < 0 && errno == EBADF)
      static_cast<void>(::open("/dev/null", O_RDWR));  // open takes the lowest free number, which is this one
  }
}

void drop_standard_output() {
  std::fflush(stdout);
  const FileHandle nowhere(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  if (nowhere) ::dup2(nowhere.get(), STDOUT_FILENO);
}

void require_printed() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    throw Error(fmt::format("standard output: writing failed ({}); make room where it goes",
                            errno == 0 ? "earlier" : std::strerror(errno)));
}

}  // namespace stowage
