#include "src/model_files/parameter_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <unordered_map>

#include "stowage/error.h"

namespace stowage {
namespace {

constexpr std::string_view gpt_prefix = "transformer.";
constexpr std::string_view bert_prefix = "bert.";
constexpr std::string_view fused = ".self.query_key_value.";

// The source of a parameter's number of rows: the parameter itself, or one of the model's sizes.
enum class RowCount : std::uint8_t { own, vocabulary, positions };

struct RowRule {
  ModelKind kind;
  std::string_view parameter;
  RowCount rows;
};
constexpr std::array<RowRule, 5> row_rules = {
    {{ModelKind::gpt2, "wte.weight", RowCount::vocabulary},
     {ModelKind::gpt2, "wpe.weight", RowCount::positions},
     {ModelKind::bert, "bert.embeddings.word_embeddings.weight", RowCount::vocabulary},
     {ModelKind::bert, "cls.predictions.bias", RowCount::vocabulary},
     {ModelKind::bert, "bert.embeddings.position_embeddings.weight", RowCount::positions}}};

RowCount row_count_of(ModelKind kind, std::string_view name) {
  for (const RowRule& rule : row_rules)
    if (rule.kind == kind && rule.parameter == name) return rule.rows;
  return RowCount::own;
}

// Linear weights of BERT are transposed in files. Tables have a row for each token, position or type on
// both sides.
bool is_transposed(ModelKind kind, const Tensor& tensor) {
  return kind == ModelKind::bert && tensor.shape.size() == 2 &&
         tensor.name.find("embeddings.") == std::string::npos;
}

[[noreturn]] void refuse_graph(const Tensor& tensor, const std::string& why) {
  throw InvalidInput(fmt::format("parameter '{}' {}; build the graph for this model", tensor.name, why));
}

std::int64_t stored_rows_of(const ModelDescription& model, const Tensor& tensor, std::int64_t rows) {
  switch (row_count_of(model.kind, tensor.name)) {
    case RowCount::vocabulary:
      if (rows < model.vocabulary)
        refuse_graph(tensor, fmt::format("has {} rows, and the model {} tokens", rows, model.vocabulary));
      return model.vocabulary;
    case RowCount::positions:
      if (rows > model.positions)
        refuse_graph(
            tensor, fmt::format("has {} rows, and the model {} positions: choose a sequence of at most these",
                                rows, model.positions));
      return rows;
    default:
      return rows;
  }
}

// Returns the parts of "…self.query_key_value.weight": three tensors, each a third of the columns.
std::vector<StoredPart> fused_parts(const ParameterParts& all, const Tensor& tensor) {
  const std::size_t at = tensor.name.find(fused);
  const std::string head = tensor.name.substr(0, at) + ".self.";
  const std::string tail = tensor.name.substr(at + fused.size() - 1);
  if (all.columns % 3 != 0) refuse_graph(tensor, "does not hold query, key and value side by side");
  const std::int64_t width = all.columns / 3;
  std::vector<StoredPart> parts;
  for (const char* name : {"query", "key", "value"}) {
    StoredPart part{head, {width}, width * static_cast<std::int64_t>(parts.size()), width, false};
    part.name.append(name).append(tail);
    if (tensor.shape.size() == 2) part.shape.push_back(all.rows);
    part.transposed = tensor.shape.size() == 2;
    parts.push_back(std::move(part));
  }
  return parts;
}

StoredPart single_part(const ModelDescription& model, const ParameterParts& all, const Tensor& tensor) {
  StoredPart part;
  part.name = model.kind == ModelKind::gpt2 ? std::string(gpt_prefix) + tensor.name : tensor.name;
  part.columns = all.columns;
  part.shape = tensor.shape;
  part.transposed = is_transposed(model.kind, tensor);
  if (part.transposed) std::swap(part.shape[0], part.shape[1]);
  const RowCount rows = row_count_of(model.kind, tensor.name);
  if (rows == RowCount::vocabulary) part.shape[0] = model.vocabulary;
  if (rows == RowCount::positions) part.shape[0] = model.positions;
  return part;
}

ParameterParts parts_of(const ModelDescription& model, const Tensor& tensor) {
  if (tensor.shape.empty() || tensor.shape.size() > 2)
    refuse_graph(tensor, "is neither a vector nor a matrix");
  ParameterParts all;
  const bool is_fused = tensor.name.find(fused) != std::string::npos;
  const bool matrix = tensor.shape.size() == 2;
  all.rows = is_fused && !matrix ? 1 : tensor.shape[0];
  all.columns = matrix ? tensor.shape[1] : (is_fused ? tensor.shape[0] : 1);
  all.stored_rows = stored_rows_of(model, tensor, all.rows);
  all.parts = is_fused ? fused_parts(all, tensor) : std::vector{single_part(model, all, tensor)};
  all.may_be_missing = model.kind == ModelKind::bert &&
                       (tensor.name.starts_with("cls.") || tensor.name.starts_with("bert.pooler."));
  return all;
}

bool ends_with_any(std::string_view name, std::initializer_list<std::string_view> ends) {
  return std::any_of(ends.begin(), ends.end(), [&](std::string_view end) { return name.ends_with(end); });
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
    const std::int64_t first = steps_to(begin - column, parameter.columns);
    const std::int64_t last = std::min(steps_to(end - column, parameter.columns), parameter.stored_rows);
    if (first < last)
      visit({index, i * parameter.stored_rows + first, first * parameter.columns + column, parameter.columns,
             last - first});
  }
}

void straight_runs(const ParameterParts& parameter, std::size_t index, std::int64_t begin, std::int64_t end,
                   const std::function<void(const Run&)>& visit) {
  const StoredPart& part = parameter.parts[index];
  if (part.columns == parameter.columns) {
    if (begin < end) visit({index, begin, begin, 1, end - begin});
    return;
  }
  for (std::int64_t row = begin / parameter.columns; row * parameter.columns < end; ++row) {
    const std::int64_t start = row * parameter.columns + part.first_column;
    const std::int64_t first = std::max(begin, start);
    const std::int64_t last = std::min(end, start + part.columns);
    if (first < last) visit({index, row * part.columns + first - start, first, 1, last - first});
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
  return all;
}

std::vector<std::string> accepted_names(ModelKind kind, const std::string& name) {
  std::vector<std::string> names = {name};
  if (kind == ModelKind::bert) {
    // Names in the files of the BERT paper's own code.
    const std::array<std::pair<std::string_view, std::string_view>, 2> older = {
        {{"LayerNorm.weight", "LayerNorm.gamma"}, {"LayerNorm.bias", "LayerNorm.beta"}}};
    for (const auto& [newer, before] : older)
      if (name.ends_with(newer))
        names.push_back(name.substr(0, name.size() - newer.size()) + std::string(before));
  }
  const std::string_view prefix = kind == ModelKind::gpt2 ? gpt_prefix : bert_prefix;
  const std::size_t with_prefix = names.size();
  for (std::size_t i = 0; i < with_prefix; ++i)
    if (names[i].starts_with(prefix)) names.push_back(names[i].substr(prefix.size()));
  // A tied table may be stored under its other name alone.
  if (name == "cls.predictions.bias") names.emplace_back("cls.predictions.decoder.bias");
  if (name == "transformer.wte.weight") names.emplace_back("lm_head.weight");
  if (name == "bert.embeddings.word_embeddings.weight") names.emplace_back("cls.predictions.decoder.weight");
  return names;
}

bool is_tied_name(std::string_view name) {
  for (const ModelKind kind : {ModelKind::gpt2, ModelKind::bert}) {
    const std::size_t at = name.find(kind == ModelKind::gpt2 ? "lm_head." : "cls.");
    if (at != std::string_view::npos && extra_tensor(kind, name.substr(at)).what == Extra::tied) return true;
  }
  return false;
}

ExtraTensor extra_tensor(ModelKind kind, std::string_view name) {
  if (kind == ModelKind::gpt2) {
    if (ends_with_any(name, {".attn.bias", ".attn.masked_bias"})) return {Extra::passed_over, {}};
    if (name == "lm_head.weight") return {Extra::tied, "transformer.wte.weight"};
    return {};
  }
  if (ends_with_any(name, {"embeddings.position_ids"})) return {Extra::passed_over, {}};
  if (name == "cls.predictions.decoder.weight")
    return {Extra::tied, "bert.embeddings.word_embeddings.weight"};
  if (name == "cls.predictions.decoder.bias") return {Extra::tied, "cls.predictions.bias"};
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
