// `stowage plan --micro-batches auto`: one model with every possible number of micro-batches, in each order.
#pragma once

#include <string>
#include <vector>

#include "tools/answer/memory_sweep.h"
#include "tools/choices/model_spec.h"

namespace stowage {

// Returns whether the words ask for each number of micro-batches, and not for one.
bool asks_for_micro_batches(const ModelWords& words);

// Returns the model with each number of micro-batches to try, in rising order: 1 to 8 on each device, as far
// as they divide the batch and are divided by the gradient groups. Each model is made from the words anew,
// since defaults depend on the number. Ignores words.micro_batches. Throws InvalidInput as model_spec does,
// if no model is named, and if no number is possible.
std::vector<ModelSpec> micro_batch_models(ModelWords words, DataType type);

struct MicroBatchRow {
  std::int64_t micro_batches = 1;  // of all devices, as --micro-batches takes it
  MicroBatchOrder order = MicroBatchOrder::layer_major;
  PlanAnswer answer;
};

struct MicroBatchChoice {
  std::vector<MicroBatchRow> rows;  // by number, then by order
  // Index of the row with the shortest step. If no row fits: of the row that lacks the fewest bytes of host
  // memory, or, if every row lacks device memory, of the row with the least device budget.
  std::size_t best = 0;
  PlanQuestion question;  // question about the best row
  Plan plan;              // plan of the best row, if it fits

  const PlanAnswer& answer() const { return rows[best].answer; }
};

// Plans each model in each order that its graph and the policy have. `question` needs no graph, and its own
// order of micro-batches is ignored. Requires at least one model.
MicroBatchChoice choose_micro_batches(PlanQuestion question, const std::vector<ModelSpec>& models,
                                      const Progress& progress);

// Returns a table of the rows, and how to run with the best one.
std::string describe(const MicroBatchChoice& choice);
nlohmann::ordered_json to_json(const MicroBatchChoice& choice);  // returns an array of the rows

}  // namespace stowage
