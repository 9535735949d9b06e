// Where each element of a parameter stands in a model's files: names, shapes and layouts, as data.
//
// A parameter is taken for a matrix of rows x columns, in its own row-major order. A tensor of a file holds
// some of its columns, as they are or transposed, and its first rows: those behind are padding.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "stowage/graph.h"
#include "stowage/model_files.h"

namespace stowage {

struct StoredPart {
  std::string name;                 // as transformers writes it
  std::vector<std::int64_t> shape;  // in a file of the model
  std::int64_t first_column = 0;
  std::int64_t columns = 0;
  bool transposed = false;  // stored [columns, rows]
};

struct ParameterParts {
  TensorId parameter = no_id;
  TensorId low = no_id;  // what makes master weights of a narrow type
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t stored_rows = 0;  // of these rows, those that files have
  std::vector<StoredPart> parts;
  bool may_be_missing = false;
};

// Of all parameters of the graph, in its order. Throws InvalidInput for a graph that is not of this model:
// fewer rows than the vocabulary, more positions than the model's, a parameter whose shape says no layout.
std::vector<ParameterParts> parameter_parts(const ModelDescription& model, const Graph& graph);

// Names that a file may have in the place of `name`, the usual one first.
std::vector<std::string> accepted_names(ModelKind kind, const std::string& name);

// What a file may have beside the parameters.
enum class Extra : std::uint8_t { none, passed_over, tied };
struct ExtraTensor {
  Extra what = Extra::none;
  std::string tied_to;  // usual name of the tensor whose bytes it must have
};
ExtraTensor extra_tensor(ModelKind kind, std::string_view name);
// Whether a model of either kind has another tensor in its place, whatever stands before the name.
bool is_tied_name(std::string_view name);

// Elements that stand in one row of a part's tensor: `count` from `stored` on; and in the parameter from
// `element` on, each `stride` behind the one before.
struct Run {
  std::size_t part = 0;
  std::int64_t stored = 0;
  std::int64_t element = 0;
  std::int64_t stride = 1;
  std::int64_t count = 0;
};
// Of the parameter's elements [begin, end), those that files have, each in one run.
void for_each_run(const ParameterParts& parameter, std::int64_t begin, std::int64_t end,
                  const std::function<void(const Run&)>& visit);

}  // namespace stowage
