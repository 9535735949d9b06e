#include "src/model_files/parameter_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <unordered_map>

#include "src/model_files/family_files.h"
#include "src/models/table_blocks.h"
#include "stowage/error.h"

namespace stowage {
namespace {

[[noreturn]] void refuse_graph(const Tensor& tensor, const std::string& why) {
  throw InvalidInput(fmt::format("parameter '{}' {}; build the graph for this model", tensor.name, why));
}

std::int64_t stored_rows_of(const ModelConfig& model, RowCount count, const Tensor& tensor,
                            std::int64_t rows) {
  if (count == RowCount::vocabulary) {
    if (rows < model.vocabulary)
      refuse_graph(tensor, fmt::format("has {} rows, and the model {} tokens", rows, model.vocabulary));
    return model.vocabulary;
  }
  if (count == RowCount::positions && rows > model.sequence)
    refuse_graph(tensor,
                 fmt::format("has {} rows, and the model {} positions: choose a sequence of at most these",
                             rows, model.sequence));
  return rows;
}

// Returns the part of a parameter that is some rows of a table.
StoredPart part_of_table(ParameterParts& all, const ParameterLayout& layout, const ModelConfig& model,
                         const Tensor& tensor) {
  const std::int64_t first = *layout.first_row;
  if (layout.rows != RowCount::vocabulary || first >= model.vocabulary)
    refuse_graph(tensor, fmt::format("is no block of a table of {} tokens", model.vocabulary));
  all.stored_rows = std::min(all.rows, model.vocabulary - first);
  return {.name = layout.names.front(),
          .shape = {model.vocabulary, all.columns},
          .first_column = 0,
          .columns = all.columns,
          .transposed = false,
          .first_row = 0,
          .rows = all.stored_rows,
          .stored_row = first};
}

// Requires that the blocks of each table hold all of its rows, in order.
void require_whole_tables(const std::vector<ParameterParts>& parameters, const Graph& graph) {
  std::map<std::string_view, std::pair<std::int64_t, const ParameterParts*>> rows;  // by tensor
  for (const ParameterParts& parameter : parameters) {
    const StoredPart& part = parameter.parts.front();
    if (parameter.parts.size() > 1 || part.transposed || !block_in(graph.tensor(parameter.parameter).name))
      continue;
    auto& [next, last] = rows[part.name];
    if (part.stored_row != next)
      refuse_graph(graph.tensor(parameter.parameter),
                   fmt::format("does not begin at row {}, behind the block before it", next));
    next += part.rows;
    last = &parameter;
  }
  for (const auto& [name, end] : rows)
    if (const auto& [next, last] = end; next != last->parts.front().shape.front())
      refuse_graph(graph.tensor(last->parameter),
                   fmt::format("is the last of '{}', whose rows from {} on are in no block", name, next));
}

// Returns the parts: one that holds all columns, or several with equal shares of them.
std::vector<StoredPart> parts_of_columns(const ParameterParts& all, const ParameterLayout& layout,
                                         const ModelConfig& model, bool matrix) {
  const auto count = static_cast<std::int64_t>(layout.names.size());
  const std::int64_t columns = all.columns / count;
  std::int64_t rows = all.rows;
  if (layout.rows == RowCount::vocabulary) rows = model.vocabulary;
  if (layout.rows == RowCount::positions) rows = model.sequence;
  std::vector<StoredPart> parts;
  for (const std::string& name : layout.names) {
    StoredPart part{.name = name,
                    .shape = {},
                    .first_column = columns * static_cast<std::int64_t>(parts.size()),
                    .columns = columns,
                    .transposed = matrix && layout.transposed,
                    .first_row = 0,
                    .rows = all.stored_rows};
    part.shape = part.transposed ? std::vector{columns, rows} : std::vector{rows, columns};
    if (!matrix) part.shape = {count > 1 ? columns : rows};
    parts.push_back(std::move(part));
  }
  return parts;
}

// Returns parts of all columns, one below the other.
std::vector<StoredPart> parts_of_rows(const ParameterParts& all, const ParameterLayout& layout, bool matrix) {
  std::vector<StoredPart> parts;
  std::int64_t first = 0;
  for (std::size_t i = 0; i < layout.names.size(); ++i) {
    const std::int64_t rows = layout.heights[i];
    parts.push_back({.name = layout.names[i],
                     .shape = matrix ? std::vector{rows, all.columns} : std::vector{rows},
                     .first_column = 0,
                     .columns = all.columns,
                     .transposed = false,
                     .first_row = first,
                     .rows = rows});
    first += rows;
  }
  return parts;
}

ParameterParts parts_of(const ModelDescription& model, const Tensor& tensor) {
  if (tensor.shape.empty() || tensor.shape.size() > 2)
    refuse_graph(tensor, "is neither a vector nor a matrix");
  const ParameterLayout layout = files_of(*model.family).layout(tensor, model.config);
  const bool matrix = tensor.shape.size() == 2;
  const bool one_below_the_other = !layout.heights.empty();
  const bool side_by_side = layout.names.size() > 1 && !one_below_the_other;
  ParameterParts all;
  all.rows = side_by_side && !matrix ? 1 : tensor.shape[0];
  all.columns = matrix ? tensor.shape[1] : (side_by_side ? tensor.shape[0] : 1);
  const std::int64_t height = std::accumulate(layout.heights.begin(), layout.heights.end(), std::int64_t{0});
  if (one_below_the_other && height != all.rows)
    refuse_graph(tensor, fmt::format("has {} rows, and the model's files {}", all.rows, height));
  if (side_by_side && all.columns % static_cast<std::int64_t>(layout.names.size()) != 0)
    refuse_graph(tensor, fmt::format("does not hold {} equal parts side by side", layout.names.size()));
  if (layout.first_row) {
    all.parts = {part_of_table(all, layout, model.config, tensor)};
    return all;
  }
  all.stored_rows = stored_rows_of(model.config, layout.rows, tensor, all.rows);
  all.parts = one_below_the_other ? parts_of_rows(all, layout, matrix)
                                  : parts_of_columns(all, layout, model.config, matrix);
  all.may_be_missing = layout.may_be_missing;
  return all;
}

// Returns distance / stride, rounded up; 0 for a negative distance.
std::int64_t steps_to(std::int64_t distance, std::int64_t stride) {
  return distance <= 0 ? 0 : (distance + stride - 1) / stride;
}

// Visits the runs of a part that is stored as [columns, rows]: each column of the parameter is one row of
// its tensor.
void transposed_runs(const ParameterParts& parameter, std::size_t index, std::int64_t begin, std::int64_t end,
                     const std::function<void(const Run&)>& visit) {
  const StoredPart& part = parameter.parts[index];
  for (std::int64_t i = 0; i < part.columns; ++i) {
    const std::int64_t column = part.first_column + i;
    const std::int64_t first = std::max(steps_to(begin - column, parameter.columns), part.first_row);
    const std::int64_t last = std::min(steps_to(end - column, parameter.columns), part.first_row + part.rows);
    if (first < last)
      visit({index, i * part.rows + first - part.first_row, first * parameter.columns + column,
             parameter.columns, last - first});
  }
}

void straight_runs(const ParameterParts& parameter, std::size_t index, std::int64_t begin, std::int64_t end,
                   const std::function<void(const Run&)>& visit) {
  const StoredPart& part = parameter.parts[index];
  const std::int64_t part_begin = part.first_row * parameter.columns;
  begin = std::max(begin, part_begin);
  end = std::min(end, part_begin + part.rows * parameter.columns);
  if (part.columns == parameter.columns) {
    const std::int64_t stored = part.stored_row * part.columns;
    if (begin < end) visit({index, stored + begin - part_begin, begin, 1, end - begin});
    return;
  }
  for (std::int64_t row = begin / parameter.columns; row * parameter.columns < end; ++row) {
    const std::int64_t start = row * parameter.columns + part.first_column;
    const std::int64_t first = std::max(begin, start);
    const std::int64_t last = std::min(end, start + part.columns);
    if (first < last)
      visit({index, (part.stored_row + row - part.first_row) * part.columns + first - start, first, 1,
             last - first});
  }
}

}  // namespace

std::vector<ParameterParts> parameter_parts(const ModelDescription& model, const Graph& graph) {
  std::unordered_map<std::string_view, TensorId> lows;
  for (TensorId id = 0; id < graph.tensors.size(); ++id) {
    const Tensor& tensor = graph.tensor(id);
    const bool is_whole = tensor.type == DataType::i16 || tensor.type == DataType::i32;
    if (tensor.kind == TensorKind::optimizer_state && is_whole) lows.emplace(tensor.name, id);
  }
  std::vector<ParameterParts> all;
  for (TensorId id = 0; id < graph.tensors.size(); ++id) {
    const Tensor& tensor = graph.tensor(id);
    if (tensor.kind != TensorKind::parameter) continue;
    all.push_back(parts_of(model, tensor));
    all.back().parameter = id;
    const auto low = lows.find(tensor.name + ".low");
    if (size_of(tensor.type) == 2 && low != lows.end()) all.back().low = low->second;
  }
  require_whole_tables(all, graph);
  return all;
}

std::vector<std::string> accepted_names(const ModelDescription& model, const std::string& name) {
  const FamilyFiles& files = files_of(*model.family);
  std::vector<std::string> names = {name};
  for (const auto& [newer, older] : files.older_endings)
    if (name.ends_with(newer))
      names.push_back(name.substr(0, name.size() - newer.size()) + std::string(older));
  const std::size_t with_prefix = names.size();
  for (std::size_t i = 0; i < with_prefix; ++i)
    if (names[i].starts_with(files.prefix)) names.push_back(names[i].substr(files.prefix.size()));
  // A tied table may be stored under its other name alone.
  for (const TiedTensor& tied : files.tied)
    if (model.config.tied && tied.tied_to == name) names.emplace_back(tied.name);
  return names;
}

bool is_tied_name(std::string_view name) {
  for (const FamilyFiles* files : all_family_files())
    for (const TiedTensor& tied : files->tied)
      if (name.ends_with(tied.name)) return true;
  return false;
}

ExtraTensor extra_tensor(const ModelDescription& model, std::string_view name) {
  const FamilyFiles& files = files_of(*model.family);
  for (const std::string_view ending : files.passed_over)
    if (name.ends_with(ending)) return {Extra::passed_over, {}};
  for (const TiedTensor& tied : files.tied)
    if (model.config.tied && tied.name == name) return {Extra::tied, std::string(tied.tied_to)};
  return {};
}

void for_each_run(const ParameterParts& parameter, std::int64_t begin, std::int64_t end,
                  const std::function<void(const Run&)>& visit) {
  end = std::min(end, parameter.stored_rows * parameter.columns);
  for (std::size_t index = 0; index < parameter.parts.size(); ++index) {
    if (parameter.parts[index].transposed)
      transposed_runs(parameter, index, begin, end, visit);
    else
      straight_runs(parameter, index, begin, end, visit);
  }
}

}  // namespace stowage
