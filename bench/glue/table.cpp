// Prints the tables of docs/glue.md.
#include <fmt/format.h>

#include <cstdio>

#include "bench/glue/glue_bytes.h"
#include "stowage/models.h"

namespace stowage::bench {
namespace {

constexpr double h100_bytes_per_second = 3.35e12;  // H100 SXM data sheet

void print_row(const GlueKernel& of, double width_bytes) {
  const double all = of.read + of.written;
  const auto milliseconds = [](double bytes) { return 1e3 * bytes / h100_bytes_per_second; };
  fmt::print("| {} | {} | {:.2f} | {:.2f} | {:.2f} | {:.2f} | {:.2f} |\n", of.kernel, of.launches,
             of.read / width_bytes, of.written / width_bytes, of.least / width_bytes, milliseconds(all),
             milliseconds(of.least));
}

// `width_bytes`: the bytes of one activation of [tokens, width].
void print_table(const char* model, const Graph& graph, double width_bytes) {
  fmt::print(
      "{}\n\n| kernel | launches | read | written | least | ms | least ms |\n|---|---|---|---|---|---|---|\n",
      model);
  GlueKernel sum{"all"};
  for (const GlueKernel& of : glue_bytes(graph)) {
    print_row(of, width_bytes);
    sum.launches += of.launches;
    sum.read += of.read;
    sum.written += of.written;
    sum.least += of.least;
  }
  print_row(sum, width_bytes);
}

void print_tables() {
  constexpr double width_bytes = 65536.0 * 768 * 2;
  GraphBuilder gpt_builder(DataType::bf16);
  const BuiltModel small = gpt(gpt_builder, {.layers = 12,
                                             .width = 768,
                                             .heads = 12,
                                             .vocabulary = 50257,
                                             .sequence = 1024,
                                             .batch = 64,
                                             .padded_vocabulary = 50304});
  print_table("GPT-2 124M, bf16, 64 samples of 1,024 tokens, no dropout:",
              gpt_builder.finish(small.loss, AdamW{}), width_bytes);
  GraphBuilder bert_builder(DataType::bf16);
  const BuiltModel base = bert(bert_builder, {.layers = 12,
                                              .width = 768,
                                              .heads = 12,
                                              .vocabulary = 30528,
                                              .sequence = 512,
                                              .batch = 128,
                                              .dropout = 0.1,
                                              .epsilon = 1e-12,
                                              .pretraining = true});
  print_table("\nBERT-base in pre-training, bf16, 128 samples of 512 tokens, dropout 0.1:",
              bert_builder.finish(base.loss, AdamW{}), width_bytes);
}

}  // namespace
}  // namespace stowage::bench

int main() {
  try {
    stowage::bench::print_tables();
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "glue_table: {}\n", error.what());
    return 1;
  }
}
