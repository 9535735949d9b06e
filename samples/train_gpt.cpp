// train_gpt: trains a byte-level GPT on a text, in a device memory of any feasible size.
//
// Exit codes: 0 done; 2 the command line, a file or a budget is wrong, one line says what to do;
// 1 the run failed; 130 Ctrl-C or SIGTERM, after finishing the step.
#include <cstdio>
#include <exception>

#include "samples/options.h"
#include "samples/training.h"
#include "stowage/error.h"

namespace {

int fail(int code, const std::exception& error) {
  std::fflush(stdout);
  std::fprintf(stderr, "train_gpt: %s\n", error.what());
  return code;
}

}  // namespace

int main(int count, char** arguments) {
  try {
    const auto command = stowage::samples::parse_command_line(count, arguments);
    if (command.help.empty()) return stowage::samples::train(command.options);
    std::fputs(command.help.c_str(), stdout);
    return 0;
  } catch (const stowage::InvalidInput& error) {
    return fail(2, error);
  } catch (const std::bad_alloc&) {
    return fail(
        1, stowage::Error("this machine's memory ran out; choose a smaller model, --batch or --sequence"));
  } catch (const std::exception& error) {
    return fail(1, error);
  }
}
