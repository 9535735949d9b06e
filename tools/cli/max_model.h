// `stowage plan --max-model`: the largest GPT of a ladder of sizes (gpt_sizes.h) that fits.
#pragma once

#include "tools/cli/plan_sweep.h"

namespace stowage {

struct MaxModel {
  PlanQuestion question;  // of the largest that fits, or of the smallest size where none does
  PlanAnswer answer;
  std::size_t place = 0;  // on the ladder
};

// Finds it by bisection: a size that fits means that all below it on the ladder do. `question` says all but
// the model and its graph. `plan`: as in answer(). Throws InvalidInput where nothing limits the size.
MaxModel max_model(PlanQuestion question, const std::vector<GptSize>& ladder, const ModelWords& words,
                   DataType type, const Progress& progress, Plan* plan = nullptr);

// Whether a plan fits. Plans only where the budget of host memory makes it necessary.
bool fits(const PlanQuestion& question);

}  // namespace stowage
