#include "samples/task/task.h"

#include "samples/task/bert_task.h"
#include "samples/task/gpt_task.h"

namespace stowage::samples {

std::unique_ptr<Task> make_task(Options& options) {
  if (options.kind == ModelKind::bert) return std::make_unique<BertTask>(options);
  return std::make_unique<GptTask>(options);
}

}  // namespace stowage::samples
