#include "samples/run/program.h"

#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <new>
#include <system_error>

#include "samples/options/options.h"
#include "samples/run/generation.h"
#include "samples/run/training.h"
#include "src/base/printable.h"
#include "src/base/standard_streams.h"
#include "src/base/temporary.h"
#include "stowage/error.h"

namespace stowage::samples {
namespace {

int fail(ModelKind kind, int code, const std::exception& error) {
  std::fflush(stdout);
  std::fprintf(stderr, "%s: %s\n", program_name(kind), printable_message(error.what()).c_str());
  return code;
}

int run(const CommandLine& command) {
  if (command.help.empty())
    return command.options.generate ? generate_text(command.options) : train(command.options);
  std::fputs(command.help.c_str(), stdout);
  return 0;
}

}  // namespace

int run_program(ModelKind kind, int count, const char* const* arguments) {
  keep_standard_streams();
  remove_temporaries_at_signals();
  try {
    const int code = run(parse_command_line(count, arguments, kind));
    if (code == 0) require_printed();
    return code;
  } catch (const InvalidInput& error) {
    return fail(kind, 2, error);
  } catch (const OutOfMemory& error) {
    return fail(kind, 2,
                Error(fmt::format("{}. Or choose a smaller model, --batch or --sequence; on a device that is "
                                  "full, a smaller --device-memory",
                                  error.what())));
  } catch (const std::bad_alloc&) {
    return fail(kind, 1,
                Error("this machine's memory ran out; choose a smaller model, --batch or --sequence"));
  } catch (const std::system_error& error) {
    if (error.code() != std::errc::resource_unavailable_try_again) return fail(kind, 1, error);
    return fail(
        kind, 1,
        Error("no thread could be started: memory (ulimit -v) or threads (ulimit -u) ran out; raise the "
              "limit, or choose a smaller model or fewer --threads"));
  } catch (const std::exception& error) {
    return fail(kind, 1, error);
  }
}

}  // namespace stowage::samples
