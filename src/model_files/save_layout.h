// Which tensors an export writes, in which types, files and order.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/model_files/parameter_parts.h"
#include "stowage/model_files.h"

namespace stowage {

// Part number `part` of parameter number `parameter`.
struct SavedPart {
  std::size_t parameter = 0;
  std::size_t part = 0;
};

// A tensor of the export: a part of a parameter, or of each of several, the blocks of a table; or a copy of a
// source's tensor that is no parameter.
struct SavedTensor {
  StoredTensor tensor;
  std::vector<SavedPart> parts;
  const StoredTensor* copied = nullptr;
};

struct SavedFile {
  std::string name;
  std::vector<SavedTensor> tensors;
  // The source's header, where its tensors are all written as they are there.
  const SafetensorsHeader* header = nullptr;
  std::string beginning;                        // the text of `header`
  std::map<std::string, std::string> metadata;  // otherwise, of a new header
};

struct SaveLayout {
  std::vector<SavedFile> files;
  std::string index;                    // empty: there is none
  std::optional<StoredType> type_word;  // type that config.json names; not set: as it was read
};

// `parameters`: parameter_parts of the model and the graph. The files of the options must outlive the result.
// Throws InvalidInput for a graph that lacks a part of the model, and for a source of another model.
SaveLayout save_layout(const ModelDescription& model, const Graph& graph,
                       const std::vector<ParameterParts>& parameters, const SaveOptions& options);

}  // namespace stowage
