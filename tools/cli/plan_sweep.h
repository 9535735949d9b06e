// `stowage plan --sweep`: the same question at many budgets, batch sizes or numbers of devices, one row each.
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
  std::vector<std::int64_t> batches;  // empty: 1, 2, 4, … until one does not fit
  std::vector<std::int64_t> devices;  // empty: 1, 2, 4, … as many as the machine has
};

// "memory", "memory=N" (2 to 1000), "batch", "batch=1,2,4", "devices", "devices=1,2,4". Throws InvalidInput
// that quotes `text`.
Sweep parse_sweep(const std::string& text);

// One row per batch size, the last of an open sweep the first that does not fit. The question has a model
// and, for an open sweep, a device budget; InvalidInput otherwise.
std::vector<SweepRow> sweep_batch(PlanQuestion question, const std::vector<std::int64_t>& batches,
                                  const Progress& progress);

// One row per number of devices, each with its own rates and, where `words` do not say otherwise, its own
// gradient groups. The question's model is that of `words`, which name no number of devices, and its machine
// a file; InvalidInput otherwise, and before anything is planned if one of the numbers is not possible.
std::vector<SweepRow> sweep_devices(PlanQuestion question, const ModelWords& words,
                                    std::vector<std::int64_t> devices, const Progress& progress);

std::string describe(const std::vector<SweepRow>& rows);
nlohmann::ordered_json to_json(const std::vector<SweepRow>& rows);  // an array

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
