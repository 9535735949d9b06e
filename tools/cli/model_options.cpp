#include "tools/cli/model_options.h"

#include <CLI/CLI.hpp>
#include <string>

namespace stowage {
namespace {

void add_word(CLI::App& app, const char* group, const char* flag, std::string& word, const char* text,
              const char* type) {
  app.add_option(flag, word, text)->group(group)->type_name(type);
}

}  // namespace

void add_model_options(CLI::App& app, const char* group, ModelWords& words) {
  add_word(app, group, "--gpt", words.gpt,
           "LAYERSxWIDTH, gpt2[-medium|-large|-xl], 1.3b, 2.7b, 6.7b, 13b, 30b, 66b, 175b", "MODEL");
  add_word(app, group, "--bert", words.bert, "LAYERSxWIDTH, base or large", "MODEL");
  add_word(
      app, group, "--model", words.model,
      "a model of Hugging Face: the folder of its config.json (no weights are needed), or a name: gpt2…, "
      "llama3.2-1b or -3b, llama3-8b, mistral-7b, qwen2.5-0.5b to -14b, qwen3-0.6b to -14b",
      "DIR|NAME");
}

void add_shape_options(CLI::App& app, const char* group, ModelWords& words) {
  add_word(app, group, "--heads", words.heads, "attention heads (the model's own, or width / 64)", "N");
  add_word(app, group, "--sequence", words.sequence,
           "tokens per sample (1024, of bert 512; of --model at most 4096)", "N");
  add_word(app, group, "--batch", words.batch, "samples per step (8; of --model 1)", "N");
  add_word(app, group, "--vocabulary", words.vocabulary, "tokens there are (50304, of bert 30528)", "N");
  add_word(app, group, "--head-chunk", words.head_chunk,
           "tokens whose logits exist at once, where the head is whole: more are faster and take more memory "
           "(2048 to 8192, by width and batch)",
           "N");
  add_word(app, group, "--table-rows", words.table_rows,
           "rows of a block of the embedding and head of a Llama or its relatives, 0: whole (16384)", "N");
  add_word(app, group, "--keep-tokens", words.keep_tokens,
           "of a BERT: the share of each sample's tokens that each MLP works on, above 0 and at most 1 (1)",
           "SHARE");
  add_word(app, group, "--moments", words.moments,
           "type of AdamW's moments of matrices: f32 (as it is), bf16 or 8bit, which give other numbers",
           "NAME");
  add_word(app, group, "--code-activations", words.code_activations,
           "bits of an element in which large activations are kept for backward: off, exact (as it is); or 8 "
           "or 4, which "
           "give other gradients; or, of plan alone, auto: answers all three",
           "NAME");
  add_word(app, group, "--type", words.type,
           "f32, bf16 or fp16 (bf16 where --machine is a card that has it, else f32)", "NAME");
}

}  // namespace stowage
