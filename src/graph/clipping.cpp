#include "src/graph/clipping.h"

#include <algorithm>
#include <variant>

#include "stowage/error.h"

namespace stowage {
namespace {

// Also true of a clip op that does not say its limit.
bool may_clip(const Op& op) {
  const auto found = op.attributes.find("clip");
  const auto* limit = found == op.attributes.end() ? nullptr : std::get_if<double>(&found->second);
  return op.kernel != "clip" || limit == nullptr || *limit > 0;
}

}  // namespace

std::string why_updates_wait(const Graph& graph) {
  for (const Op& op : graph.ops)
    if (std::find(op.writes.begin(), op.writes.end(), graph.clip) != op.writes.end() && may_clip(op))
      return "gradients are clipped by the norm of all of them, which is known behind backward: switch "
             "clipping off (AdamW::clip 0; trainers: --clip 0)";
  for (const Tensor& tensor : graph.tensors)
    if (tensor.kind == TensorKind::parameter && tensor.type == DataType::f16)
      return "in fp16 a step whose gradients overflow is left out, which is known behind backward: train in "
             "bf16 or f32 (--type)";
  return "";
}

void require_no_clipping(const Graph& graph) {
  const std::string reason = why_updates_wait(graph);
  if (!reason.empty()) throw InvalidInput("the optimizer cannot run in backward: " + reason);
}

}  // namespace stowage
