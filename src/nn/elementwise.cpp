// gelu, tanh, dropout, add.
#include "src/nn/operands.h"
#include "stowage/nn.h"

namespace stowage::nn {

Value gelu(GraphBuilder& builder, std::string name, Value x, Gelu form) {
  require_operand(builder, name, "input", x, builder.tensor(x).shape, builder.work_type());
  Value y = builder.activation(name, builder.tensor(x).shape);
  std::string full = builder.tensor(y).name;
  Attributes attributes{{"form", std::string(form == Gelu::tanh ? "tanh" : "erf")}};
  auto backward = [=](GraphBuilder& b, const std::vector<Value>& gradients) {
    Value dx = b.gradient_like(x);
    b.op({full + ".backward",
          "gelu_backward",
          attributes,
          {x, gradients[0]},
          {dx},
          in_place(b, gradients[0], 1),
          {20 * elements(b, x), 0}});
    b.add_gradient(x, dx, true);
  };
  builder.op({name, "gelu", attributes, {x}, {y}, {}, {12 * elements(builder, x), 0}}, backward);
  return y;
}

Value tanh(GraphBuilder& builder, std::string name, Value x) {
  require_operand(builder, name, "input", x, builder.tensor(x).shape, builder.work_type());
  Value y = builder.activation(name, builder.tensor(x).shape);
  std::string full = builder.tensor(y).name;
  auto backward = [=](GraphBuilder& b, const std::vector<Value>& gradients) {
    Value dx = b.gradient_like(x);
    b.op({full + ".backward",
          "tanh_backward",
          {},
          {y, gradients[0]},
          {dx},
          in_place(b, gradients[0], 1),
          {4 * elements(b, x), 0}});
    b.add_gradient(x, dx, true);
  };
  builder.op({name, "tanh", {}, {x}, {y}, {}, {12 * elements(builder, x), 0}}, backward);
  return y;
}

namespace {

void require_probability(const std::string& name, double probability) {
  require(probability >= 0 && probability < 1, name,
          "the dropout probability is outside [0, 1); choose one inside");
}

}  // namespace

// The forward op never overwrites x, so that it can be replayed from x alone.
Value dropout(GraphBuilder& builder, std::string name, Value x, double probability) {
  require_probability(name, probability);
  if (probability == 0) return x;
  require_operand(builder, name, "input", x, builder.tensor(x).shape, builder.work_type());
  Value y = builder.activation(name, builder.tensor(x).shape);
  std::string full = builder.tensor(y).name;
  Attributes attributes{{"probability", probability}};
  builder.add_random_stream(attributes, name, builder.tensor(x).elements());
  auto backward = [=](GraphBuilder& b, const std::vector<Value>& gradients) {
    Value dx = b.gradient_like(x);
    b.op({full + ".backward",
          "dropout",
          attributes,
          {gradients[0]},
          {dx},
          in_place(b, gradients[0], 0),
          {2 * elements(b, x), 0}});
    b.add_gradient(x, dx, true);
  };
  builder.op({name, "dropout", attributes, {x}, {y}, {}, {2 * elements(builder, x), 0}}, backward);
  return y;
}

Value add(GraphBuilder& builder, std::string name, Value a, Value b) {
  require_operand(builder, name, "first input", a, builder.tensor(a).shape, builder.work_type());
  require_operand(builder, name, "second input", b, builder.tensor(a).shape, builder.work_type());
  Value y = builder.activation(name, builder.tensor(a).shape);
  auto backward = [a, b](GraphBuilder& builder, const std::vector<Value>& gradients) {
    bool both = builder.wants_gradient(a) && builder.wants_gradient(b);
    bool fresh = !both && builder.may_overwrite(gradients[0]);
    if (builder.wants_gradient(a)) builder.add_gradient(a, gradients[0], fresh);
    if (builder.wants_gradient(b)) builder.add_gradient(b, gradients[0], fresh);
  };
  builder.op({name, "add", {}, {a, b}, {y}, {}, {elements(builder, a), 0}}, backward);
  return y;
}

Value add_dropout(GraphBuilder& builder, std::string name, Value a, Value b, double probability) {
  require_probability(name, probability);
  if (probability == 0) return add(builder, std::move(name), a, b);
  require_operand(builder, name, "first input", a, builder.tensor(a).shape, builder.work_type());
  require_operand(builder, name, "second input", b, builder.tensor(a).shape, builder.work_type());
  Value y = builder.activation(name, builder.tensor(a).shape);
  std::string full = builder.tensor(y).name;
  Attributes attributes{{"probability", probability}};
  builder.add_random_stream(attributes, name, builder.tensor(b).elements());
  auto backward = [=](GraphBuilder& builder, const std::vector<Value>& gradients) {
    const bool both = builder.wants_gradient(a) && builder.wants_gradient(b);
    const bool fresh = !both && builder.may_overwrite(gradients[0]);
    if (builder.wants_gradient(a)) builder.add_gradient(a, gradients[0], fresh);
    if (!builder.wants_gradient(b)) return;
    Value db = builder.gradient_like(b);
    builder.op({full + ".backward",
                "dropout",
                attributes,
                {gradients[0]},
                {db},
                fresh ? std::vector<Alias>{{0, 0}} : std::vector<Alias>{},
                {2 * elements(builder, b), 0}});
    builder.add_gradient(b, db, true);
  };
  builder.op({name, "add", attributes, {a, b}, {y}, {}, {3 * elements(builder, a), 0}}, backward);
  return y;
}

}  // namespace stowage::nn
