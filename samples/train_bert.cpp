// train_bert: pre-trains a BERT on a text, in a device memory of any feasible size.
#include "samples/run/program.h"

int main(int count, char** arguments) {
  return stowage::samples::run_program(stowage::samples::Program::train_bert, count, arguments);
}
