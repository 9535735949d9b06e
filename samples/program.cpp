#include "samples/program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>

#include "samples/generation.h"
#include "samples/options.h"
#include "samples/training.h"
#include "stowage/error.h"

namespace stowage::samples {
namespace {

int fail(ModelKind kind, int code, const std::exception& error) {
  std::fflush(stdout);
  std::fprintf(stderr, "%s: %s\n", program_name(kind), error.what());
  return code;
}

// A file that is opened must not become stdout because that was closed: lines for people would go into it.
void keep_standard_streams() {
  for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream) {
    if (::fcntl(stream, F_GETFD) < 0 && errno == EBADF)
      static_cast<void>(::open("/dev/null", O_RDWR));  // takes the lowest number that is free: this one
  }
}

int run(const CommandLine& command) {
  if (command.help.empty())
    return command.options.generate ? generate_text(command.options) : train(command.options);
  std::fputs(command.help.c_str(), stdout);
  return 0;
}

// What was written for people is lost, which a script must hear.
void require_written() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    throw Error(fmt::format("standard output: writing failed ({}); make room where it goes",
                            errno == 0 ? "earlier" : std::strerror(errno)));
}

}  // namespace

int run_program(ModelKind kind, int count, const char* const* arguments) {
  keep_standard_streams();
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error of the write
  try {
    const int code = run(parse_command_line(count, arguments, kind));
    if (code == 0) require_written();
    return code;
  } catch (const InvalidInput& error) {
    return fail(kind, 2, error);
  } catch (const OutOfMemory& error) {
    return fail(kind, 2,
                Error(fmt::format("{}. Choose a smaller model, --batch, --sequence or --device-memory",
                                  error.what())));
  } catch (const std::bad_alloc&) {
    return fail(kind, 1,
                Error("this machine's memory ran out; choose a smaller model, --batch or --sequence"));
  } catch (const std::exception& error) {
    return fail(kind, 1, error);
  }
}

}  // namespace stowage::samples
