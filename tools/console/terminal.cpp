#include "tools/console/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

namespace stowage {

int terminal_columns(std::FILE* file) {
  if (::isatty(::fileno(file)) == 0) return 0;
  winsize size{};
  const bool known = ::ioctl(::fileno(file), TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  return known ? size.ws_col : 80;
}

}  // namespace stowage
