// `stowage plan --sweep` and --max-model: one question at many budgets, batch sizes, numbers of devices
// or sizes.
#pragma once

#include <string>
#include <vector>

#include "tools/answer/memory_sweep.h"
#include "tools/choices/model_spec.h"

namespace stowage {

struct Sweep {
  enum class Over : std::uint8_t { memory, batch, devices };
  Over over = Over::memory;
  std::size_t budgets = 12;
  std::vector<std::int64_t> batches;  // batch sizes; empty: 1, 2, 4, … until one does not fit
  std::vector<std::int64_t> devices;  // numbers of devices; empty: 1, 2, 4, … as many as the machine has
};

// "memory", "memory=N" (2 to 1000), "batch", "batch=1,2,4", "devices", "devices=1,2,4". Throws InvalidInput
// that quotes `text`.
Sweep parse_sweep(const std::string& text);

// Returns a row per batch size; an open sweep ends with the first that does not fit. Throws InvalidInput for
// a question without a model, and for an open sweep without a device budget.
std::vector<SweepRow> sweep_batch(PlanQuestion question, const std::vector<std::int64_t>& batches,
                                  const Progress& progress);

// Returns a row per number of devices, each with its own rates and, if `words` do not say otherwise, its own
// gradient groups. `words`: those of the question's model, without a number of devices. Throws InvalidInput
// for a question without a model or a machine file, and, before anything is planned, for a number that is
// not possible.
std::vector<SweepRow> sweep_devices(PlanQuestion question, const ModelWords& words,
                                    std::vector<std::int64_t> devices, const Progress& progress);

// `stowage plan --code-activations auto`: a row for activations that are exact, in 8 and in 4 bits. Throws
// InvalidInput for a question without a model.
std::vector<SweepRow> sweep_codes(PlanQuestion question, const Progress& progress);

std::string describe(const std::vector<SweepRow>& rows);
nlohmann::ordered_json to_json(const std::vector<SweepRow>& rows);  // returns an array

// `stowage plan --max-model`: the largest GPT of a ladder of sizes (gpt_ladder) that fits.
struct MaxModel {
  PlanQuestion question;  // question about the largest size that fits, or the smallest size if none fits
  PlanAnswer answer;
  std::size_t place = 0;  // index on the ladder
};

// Finds the largest size by bisection: if a size fits, all below it on the ladder do. `question` lacks the
// model and its graph. `plan` receives the plan, as in answer(). Throws InvalidInput if
// nothing limits the size.
MaxModel max_model(PlanQuestion question, const std::vector<GptSize>& ladder, const ModelWords& words,
                   DataType type, const Progress& progress, Plan* plan = nullptr);

// Returns whether a plan is found (Planner::fits). Plans only if the budget of host memory makes it
// necessary.
bool fits(const PlanQuestion& question);

}  // namespace stowage
