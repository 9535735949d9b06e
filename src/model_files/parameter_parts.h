// Places of a parameter's elements in a model's files: names, shapes and layouts, as data.
//
// A parameter counts as a matrix of rows x columns, in its own row-major order. A tensor of a file holds some
// of its columns or some of its rows, as they are or transposed. Rows behind `stored_rows` are padding. A
// block of a table's rows is a parameter whose tensor has the other blocks too.
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
  std::string name;                 // name that transformers writes
  std::vector<std::int64_t> shape;  // shape in a file of the model
  std::int64_t first_column = 0;
  std::int64_t columns = 0;
  bool transposed = false;  // stored [columns, rows]
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
  std::int64_t stored_row = 0;  // row of the tensor at which the part begins; 0 where it is transposed
};

struct ParameterParts {
  TensorId parameter = no_id;
  TensorId low = no_id;  // low part of a narrow type's master weights
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t stored_rows = 0;  // rows in the model's files
  std::vector<StoredPart> parts;
  bool may_be_missing = false;
};

// Returns the parts of all parameters of the graph, in its order. Throws InvalidInput for a graph of
// another model: fewer rows than the vocabulary, blocks that leave rows of a table out, more positions than
// the model's, a parameter whose shape fits no layout.
std::vector<ParameterParts> parameter_parts(const ModelDescription& model, const Graph& graph);

// Returns the names that a file may use for `name`, the usual one first.
std::vector<std::string> accepted_names(const ModelDescription& model, const std::string& name);

// A tensor that a file may have beside the parameters.
enum class Extra : std::uint8_t { none, passed_over, tied };
struct ExtraTensor {
  Extra what = Extra::none;
  std::string tied_to;  // usual name of the tensor whose bytes this one must have
};
ExtraTensor extra_tensor(const ModelDescription& model, std::string_view name);
// Returns whether the name, behind any prefix, is of a tensor that some family ties to another one.
bool is_tied_name(std::string_view name);

// A run of elements in one row of a part's tensor: `count` elements from `stored` on. In the parameter they
// stand from `element` on, `stride` apart.
struct Run {
  std::size_t part = 0;
  std::int64_t stored = 0;
  std::int64_t element = 0;
  std::int64_t stride = 1;
  std::int64_t count = 0;
};
// Visits the runs of the parameter's elements [begin, end) that files have; every element is in one run.
void for_each_run(const ParameterParts& parameter, std::int64_t begin, std::int64_t end,
                  const std::function<void(const Run&)>& visit);

}  // namespace stowage
