// From measured copies to the two numbers that the planner knows of a link.
#pragma once

#include <span>

#include "stowage/machine_file.h"

namespace stowage {

// Latency and peak of seconds = latency + bytes / peak by least squares, each error weighted by 1 / seconds:
// long copies decide the peak and short ones the latency, though their times are thousands of times shorter.
// Latency is no less than 0. Throws InvalidInput unless there
// are copies of two sizes, all of positive time.
Link fit_link(std::span<const CopySample> samples);

}  // namespace stowage
