#include "samples/program.h"

#include <cstdio>
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

}  // namespace

int run_program(ModelKind kind, int count, const char* const* arguments) {
  try {
    const CommandLine command = parse_command_line(count, arguments, kind);
    if (command.help.empty())
      return command.options.generate ? generate_text(command.options) : train(command.options);
    std::fputs(command.help.c_str(), stdout);
    return 0;
  } catch (const InvalidInput& error) {
    return fail(kind, 2, error);
  } catch (const std::bad_alloc&) {
    return fail(kind, 1,
                Error("this machine's memory ran out; choose a smaller model, --batch or --sequence"));
  } catch (const std::exception& error) {
    return fail(kind, 1, error);
  }
}

}  // namespace stowage::samples
