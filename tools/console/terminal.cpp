#include "tools/console/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include "src/base/printable.h"

namespace stowage {
namespace {

constexpr const char* erase_line = "\r\033[K";

}  // namespace

int terminal_columns(std::FILE* file) {
  if (::isatty(::fileno(file)) == 0) return 0;
  winsize size{};
  const bool known = ::ioctl(::fileno(file), TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  return known ? size.ws_col : 80;
}

std::FILE* terminal_or_null(std::FILE* file) { return ::isatty(::fileno(file)) == 1 ? file : nullptr; }

ProgressLine::~ProgressLine() {
  if (!shown_) return;
  std::fputs(erase_line, terminal_);
  std::fflush(terminal_);
}

void ProgressLine::show(const std::string& what) {
  if (terminal_ == nullptr) return;
  shown_ = true;
  std::fprintf(terminal_, "%splanning: %s", erase_line, printable(what).c_str());
  std::fflush(terminal_);
}

}  // namespace stowage
