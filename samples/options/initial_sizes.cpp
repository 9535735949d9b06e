#include "samples/options/initial_sizes.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "src/model_files/convert.h"
#include "src/model_files/family_files.h"
#include "stowage/model_files.h"
#include "stowage/safetensors.h"

namespace stowage::samples {
namespace {

// Throws InvalidInput for a model that another program trains.
void require_of_program(const ModelDescription& model, const Options& options) {
  const bool generates = options.program == Program::train_gpt;
  if (model.family->generates == generates) return;
  throw InvalidInput(
      fmt::format("config.json: 'model_type' is {}, and {} trains {}; give a model of that type, or use {}",
                  files_of(*model.family).model_type, program_name(options.program),
                  generates ? "models that generate text" : "a BERT",
                  program_name(generates ? Program::train_bert : Program::train_gpt)));
}

[[noreturn]] void contradict(const Options& options, const char* flag, std::int64_t given, const char* field,
                             std::int64_t value, const char* remedy) {
  throw InvalidInput(fmt::format("{} {} contradicts --init {}, whose config.json has {} {}: {}", flag, given,
                                 options.init, field, value, remedy));
}

// Returns the type of most elements in the files; f32 for f64.
DataType type_of(const TensorFiles& files) {
  std::map<StoredType, Bytes> elements;
  for (const std::string_view name : files.names()) {
    const StoredTensor* tensor = files.find(name);
    if (is_real(tensor->type)) elements[tensor->type] += tensor->bytes / size_of(tensor->type);
  }
  const auto most = std::max_element(elements.begin(), elements.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most == elements.end()) return DataType::f32;
  return most->first == StoredType::bf16  ? DataType::bf16
         : most->first == StoredType::f16 ? DataType::f16
                                          : DataType::f32;
}

}  // namespace

void take_initial_sizes(Options& options, const GivenSizes& given) {
  if (options.init.empty()) return;
  const ModelDescription found = with_prefix("--init ", [&] { return read_model_description(options.init); });
  about_initial(options, [&] { require_of_program(found, options); });
  const ConfigFields& fields = files_of(*found.family).fields;
  const ModelConfig& stored = found.config;
  const ModelConfig asked = options.model;
  const auto agree = [&](bool is_given, std::int64_t size, std::int64_t value, const char* flag,
                         const char* field) {
    if (is_given && size != value) contradict(options, flag, size, field, value, "leave the flag out");
  };
  agree(given.layers, asked.layers, stored.layers, "--layers", fields.layers);
  agree(given.width, asked.width, stored.width, "--width", fields.width);
  agree(given.heads, asked.heads, stored.heads, "--heads", fields.heads);
  if (given.sequence && asked.sequence > stored.sequence)
    contradict(options, "--sequence", asked.sequence, fields.positions, stored.sequence,
               "choose at most these");
  ModelConfig& model = options.model;
  model = stored;
  if (given.sequence)
    model.sequence = asked.sequence;
  else if (!found.family->learned_positions)
    model.sequence = std::min(stored.sequence, found.family->defaults.sequence);
  if (given.dropout) {
    model.dropout = asked.dropout;
    model.embedding_dropout = model.attention_dropout = model.residual_dropout = {};
  }
  model.batch = asked.batch;
  model.micro_batches = asked.micro_batches;
  model.gradient_groups = asked.gradient_groups;
  model.head_tokens = asked.head_tokens;
  model.keep_tokens = asked.keep_tokens;
  model.code_activations = asked.code_activations;
  if (given.table_rows) model.table_rows = asked.table_rows;
  options.family = found.family;
  options.initial = found;
  const TensorFiles files = with_prefix("--init ", [&] { return TensorFiles(options.init); });
  about_initial(options, [&] { check_sizes(files, found); });
  options.file_type = type_of(files);
  if (!given.type) options.type = options.file_type;
}

}  // namespace stowage::samples
