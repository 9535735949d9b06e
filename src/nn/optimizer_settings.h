// The optimizer's settings as an update op's attributes give them, with the step's own.
#pragma once

#include "kernels/math/adamw.h"
#include "src/nn/kernel_call.h"

namespace stowage {

inline AdamWSettings adamw_settings(const KernelCall& call) {
  const StepContext& step = call.step();
  return {call.real("beta1"),        call.real("beta2"), call.real("epsilon"),
          call.real("weight_decay"), step.learning_rate, step.step - step.skipped_steps};
}

}  // namespace stowage
