// `stowage calibrate`: measures a machine and writes its file.
#pragma once

#include <optional>
#include <string>

#include "stowage/machine_file.h"

namespace CLI {
class App;
}

namespace stowage {

struct CalibrateCommand {
  std::string device = "auto";  // as open_device (stowage/choose_device.h) takes it
  std::string devices = "1";    // to measure together: the one above and those behind it
  bool quick = false;
  std::string link;         // of the simulated device, each way: "8GB/s" or "unthrottled"; empty: 8GB/s
  std::string output_file;  // where to write to_json(MachineFile); empty: path_of_machine_here()
};

// `command` must outlive the parsing.
CLI::App* add_calibrate(CLI::App& app, CalibrateCommand& command);

// Returns the measured numbers for people.
std::string describe(const MachineFile& file);

// Appends what was measured to `output`. Returns the exit code 0. Throws InvalidInput for a device that is
// not there, too few or different devices, a mistaken link, or a file that cannot be written; nothing is
// measured then.
int run_calibrate_command(const CalibrateCommand& command, std::string& output);

}  // namespace stowage
