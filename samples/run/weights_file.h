// The --weights file: one line of JSON, then the parameters' raw bytes, as the machine holds them.
//
//   {"format": "stowage-weights", "version": 1, "tensors": [{"name": …, "type": "f32", "shape": […],
//    "offset": …, "bytes": …}, …]}\n<bytes>
// Offsets count from the byte after the line's end; tensors are in the graph's order, without gaps.
#pragma once

#include <functional>
#include <string>

#include "src/base/output_file.h"
#include "stowage/graph.h"

namespace stowage::samples {

using ReadTensor = std::function<std::vector<std::byte>(TensorId)>;

// The first line, with its end.
std::string weights_index(const Graph& graph);

// Writes all parameters and commits the file.
void write_weights(OutputFile& file, const Graph& graph, const ReadTensor& read);

}  // namespace stowage::samples
