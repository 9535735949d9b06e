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
  std::string device = "auto";  // a name that open_device (stowage/choose_device.h) takes
  std::string devices = "1";    // number of devices to measure together, from the one above on
  bool quick = false;
  std::string link;         // rate of the simulated link each way: "8GB/s" or "unthrottled"; empty: 8GB/s
  std::string output_file;  // file to write to_json(MachineFile) to; empty: path_of_machine_here()
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
