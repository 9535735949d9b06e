// FamilyFiles: the names and layouts of one family's files, as data.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stowage/graph.h"
#include "stowage/models.h"

namespace stowage {

class JsonField;

// Names of fields in the family's config.json.
struct ConfigFields {
  const char* layers;
  const char* width;
  const char* heads;
  const char* positions;
  const char* epsilon;
  const char* inner;              // width within the MLP; null: read_more reads it
  const char* embedding_dropout;  // null: the family has none
  const char* attention_dropout;
  const char* residual_dropout;  // null: the family has none
};

// A field with one supported value, which is also transformers' default.
struct FixedField {
  const char* name;
  const char* value;    // JSON text
  bool written = true;  // an export without a source has it
};

// The source of a stored tensor's number of rows: the parameter itself, or one of the model's sizes.
enum class RowCount : std::uint8_t { own, vocabulary, positions };

// How a parameter's elements are stored: in one tensor, side by side in several tensors of equal width, or
// one below the other in several tensors of their own heights.
struct ParameterLayout {
  std::vector<std::string> names;       // names that transformers writes
  std::vector<std::int64_t> heights{};  // rows of each tensor; empty: the tensors stand side by side
  bool transposed = false;              // a matrix is stored [columns, rows]
  RowCount rows = RowCount::own;
  bool may_be_missing = false;
  // First row of a parameter that is some of the tensor's rows.
  std::optional<std::int64_t> first_row{};
};

// A tensor that has the bytes of another one, where a file has it. A model that is not tied has none.
struct TiedTensor {
  std::string_view name;
  std::string_view tied_to;  // usual name
};

// A shape that config.json alone tells.
struct KnownShape {
  std::string name;  // usual name
  std::vector<std::int64_t> shape;
};

struct FamilyFiles {
  const ModelFamily* family;

  std::string_view model_type;    // of config.json
  std::string_view architecture;  // class that an export names
  std::string_view class_prefix;  // how names of the family's classes begin
  // Fields by which a config.json without a model_type is known; empty: it is not.
  std::vector<const char*> tells;
  ConfigFields fields;
  std::vector<FixedField> fixed;
  bool inner_may_be_null;      // and is 4 times the width then
  bool writes_absent_padding;  // an export has pad_token_id, null where there is none
  double usual_dropout;        // where a field is absent
  double usual_epsilon;        // where the field is absent
  // Read and write the fields that other families lack. Null: there are none.
  void (*read_more)(const JsonField& root, ModelConfig& config);
  void (*write_more)(const ModelConfig& config, nlohmann::json& json);
  bool keeps_source;  // an export of a model that was read is its config.json, changed where sizes changed
  // Fields that say one thing together: if one of them changes, all are written anew.
  std::vector<std::vector<const char*>> joint_fields;

  std::string_view prefix;    // with which a usual name may begin, and which a file may leave out
  std::string_view whole_by;  // usual name of a tensor that only the whole model has
  std::vector<TiedTensor> tied;
  std::vector<std::string_view> passed_over;  // endings of tensors that are no parameters
  // Endings of usual names, and of the same names in older files.
  std::vector<std::pair<std::string_view, std::string_view>> older_endings;
  ParameterLayout (*layout)(const Tensor& parameter, const ModelConfig& config);
  std::vector<KnownShape> (*tables)(const ModelConfig& config);
  KnownShape (*in_layer)(const ModelConfig& config, std::int64_t layer);  // one of each layer
};

const FamilyFiles& gpt_files();
const FamilyFiles& bert_files();
const FamilyFiles& llama_files();
const FamilyFiles& mistral_files();
const FamilyFiles& qwen2_files();
const FamilyFiles& qwen3_files();

std::span<const FamilyFiles* const> all_family_files();
// Requires a family of all_family_files().
const FamilyFiles& files_of(const ModelFamily& family);

// Returns the families' titles as "GPT-2, BERT or Llama".
std::string titles_of_families();

}  // namespace stowage
