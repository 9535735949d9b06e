// A graph small enough to read, with one of each feature: two units, a parameter used in both, an update in
// place, an alias, a workspace, attributes of each type. No kernel exists for its ops.
#pragma once

#include "stowage/graph_builder.h"

namespace stowage::test {

// Adds y = f(x, parameter) with a backward rule that may work in place on dy.
inline Value scale(GraphBuilder& builder, const std::string& name, Value x, Value parameter) {
  Value y = builder.activation(name, builder.tensor(x).shape);
  std::string full = builder.tensor(y).name;
  auto backward = [=](GraphBuilder& b, const std::vector<Value>& gradients) {
    if (b.wants_gradient(parameter)) {
      Value dparameter = b.gradient_like(parameter);
      b.op({full + ".backward_parameter",
            "scale_backward_parameter",
            {},
            {x, gradients[0]},
            {dparameter},
            {},
            {}});
      b.add_gradient(parameter, dparameter, true);
    }
    if (b.wants_gradient(x)) {
      Value dx = b.gradient_like(x);
      std::vector<Alias> aliases;
      if (b.may_overwrite(gradients[0])) aliases.push_back({0, 0});
      b.op({full + ".backward", "scale_backward", {}, {gradients[0], parameter}, {dx}, aliases, {}});
      b.add_gradient(x, dx, true);
    }
  };
  builder.op({name,
              "scale",
              {{"rounds", std::int64_t{3}}, {"by", 0.1}, {"form", std::string("plain \"é\"")}},
              {x, parameter},
              {y},
              {},
              {}},
             backward);
  return y;
}

// Adds loss = reduce(x) with a workspace.
inline Value reduce(GraphBuilder& builder, const std::string& name, Value x) {
  Value loss = builder.activation(name, {}, DataType::f64);
  Value scratch = builder.workspace(name + ".scratch", 10);
  std::string full = builder.tensor(loss).name;
  auto backward = [=](GraphBuilder& b, const std::vector<Value>&) {
    Value dx = b.gradient_like(x);
    b.op({full + ".backward", "reduce_backward", {}, {x}, {dx}, {}, {}});
    b.add_gradient(x, dx, true);
  };
  builder.op({name, "reduce", {}, {x}, {loss, scratch}, {}, {12.5, 1e-310}}, backward);
  return loss;
}

inline Graph small_graph() {
  GraphBuilder b;
  Value x = b.input("x", {4, 3}, DataType::f32);
  Value first = b.parameter("first", {3, 3}, {0.25, 0.1});
  Value second = b.parameter("second", {3}, {1, 0});
  b.begin_unit("one");
  Value y = scale(b, "y1", x, first);
  b.begin_unit("two");
  Value z = scale(b, "y3", scale(b, "y2", y, second), first);
  return b.finish(reduce(b, "loss", z), {});
}

}  // namespace stowage::test
