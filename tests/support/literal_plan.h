// A graph and an invalid plan, whose accounts are literals.
#pragma once

#include "stowage/plan.h"

namespace stowage::test {

// Has an activation bucket of each residency, and a parameter bucket of each residency.
struct LiteralPlan {
  Graph graph;
  Plan plan;

  LiteralPlan() {
    const auto tensor = [&](const char* name, TensorKind kind, std::int64_t elements) {
      Tensor result;
      result.name = name;
      result.kind = kind;
      result.shape = {elements};
      graph.tensors.push_back(result);
    };
    tensor("w0", TensorKind::parameter, 10);
    tensor("w1", TensorKind::parameter, 20);
    tensor("w2", TensorKind::parameter, 30);
    tensor("m0", TensorKind::optimizer_state, 10);
    tensor("kept", TensorKind::activation, 100);
    tensor("again", TensorKind::activation, 200);
    tensor("away", TensorKind::activation, 300);
    tensor("short", TensorKind::activation, 400);
    graph.ops.resize(2);
    graph.ops[0].writes = {4, 5, 6, 7};
    graph.ops[1].phase = Phase::backward;
    graph.ops[1].reads = {4, 5, 6};
    const auto bucket = [&](Residency residency, TensorId id) {
      Bucket result;
      result.kind = graph.tensor(id).kind;
      result.residency = residency;
      result.bytes = graph.tensor(id).bytes();
      result.tensors = {{id, 0}};
      plan.buckets.push_back(result);
    };
    bucket(Residency::resident, 0);
    bucket(Residency::held, 1);
    bucket(Residency::streamed, 2);
    bucket(Residency::host, 3);
    bucket(Residency::transient, 4);
    bucket(Residency::recomputed, 5);
    bucket(Residency::offloaded, 6);
    bucket(Residency::transient, 7);
    plan.device_peak_bytes = 900;
    plan.h2d_bytes = 2048;
    plan.d2h_bytes = 1024;
    plan.predicted_step_seconds = 0.5;
    plan.lower_bound_seconds = 0.4;
    plan.bound_by = "h2d";
  }
};

}  // namespace stowage::test
