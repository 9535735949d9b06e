#include "samples/task.h"

#include "samples/bert_task.h"
#include "samples/gpt_task.h"

namespace stowage::samples {

std::unique_ptr<Task> make_task(Options& options) {
  if (options.kind == ModelKind::bert) return std::make_unique<BertTask>(options);
  return std::make_unique<GptTask>(options);
}

}  // namespace stowage::samples
