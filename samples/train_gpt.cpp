// train_gpt: trains a GPT on a text, in a device memory of any feasible size; and writes text with it.
#include "samples/run/program.h"

int main(int count, char** arguments) {
  return stowage::samples::run_program(stowage::samples::Program::train_gpt, count, arguments);
}
