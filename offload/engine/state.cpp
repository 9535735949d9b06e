#include "offload/engine/state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "stowage/error.h"
#include "stowage/evaluate.h"

namespace stowage {
namespace {

bool lives_across_steps(const Tensor& tensor) {
  return tensor.kind == TensorKind::parameter || tensor.kind == TensorKind::optimizer_state;
}

}  // namespace

State::State(Staging& staging, const Graph& graph, const Plan& plan, std::span<const TensorPlace> places,
             const HostMemory& host, const Arena& arena)
    : staging_(staging), graph_(graph), plan_(plan), homes_(graph.tensors.size()) {
  for (TensorId id = 0; id < graph.tensors.size(); ++id) {
    if (!lives_across_steps(graph.tensor(id))) continue;
    Home& home = homes_[id];
    const auto [bucket, offset] = places[id];
    if (host.bucket(bucket) != nullptr) home.host = host.bucket(bucket) + offset;
    for (const Lifetime& lifetime : plan.lifetimes)
      if (lifetime.bucket == bucket && lifetime.end == no_id)
        home.device = arena.at(lifetime.offset + offset, graph.tensor(id).bytes());
    home.device_leads = home.device != nullptr && (home.host == nullptr || updated_on_device(id));
    if (home.host == nullptr && home.device == nullptr)
      throw InvalidInput(
          fmt::format("the plan keeps '{}' nowhere from step to step: plan again", graph.tensor(id).name));
  }
}

bool State::updated_on_device(TensorId tensor) const {
  return std::any_of(plan_.instructions.begin(), plan_.instructions.end(),
                     [&](const Instruction& instruction) {
                       if (instruction.kind != InstructionKind::launch) return false;
                       const auto& writes = graph_.op(instruction.op).writes;
                       return std::find(writes.begin(), writes.end(), tensor) != writes.end();
                     });
}

void State::initialise(std::uint64_t seed) {
  std::vector<std::byte> value;
  for (TensorId id = 0; id < graph_.tensors.size(); ++id) {
    const Tensor& tensor = graph_.tensor(id);
    if (!lives_across_steps(tensor)) continue;
    value.assign(tensor.bytes(), std::byte{0});
    if (tensor.kind == TensorKind::parameter) initialize(tensor, seed, value);
    write(id, value);
  }
}

State::Home State::home(TensorId tensor) const {
  if (tensor >= homes_.size() || !lives_across_steps(graph_.tensor(tensor)))
    throw InvalidInput(
        fmt::format("tensor {} keeps no value from step to step: only parameters and "
                    "optimizer state can be read and written",
                    tensor < homes_.size() ? graph_.tensor(tensor).name : std::to_string(tensor)));
  return homes_[tensor];
}

std::vector<std::byte> State::read(TensorId tensor) {
  const Home from = home(tensor);
  std::vector<std::byte> value(graph_.tensor(tensor).bytes());
  if (from.device_leads)
    staging_.download(value, from.device);
  else
    std::memcpy(value.data(), from.host, value.size());
  return value;
}

void State::write(TensorId tensor, std::span<const std::byte> value) {
  const Home to = home(tensor);
  if (value.size() != graph_.tensor(tensor).bytes())
    throw InvalidInput(fmt::format("'{}' takes {} bytes, not {}", graph_.tensor(tensor).name,
                                   graph_.tensor(tensor).bytes(), value.size()));
  if (to.host != nullptr) std::memcpy(to.host, value.data(), value.size());
  if (to.device != nullptr) staging_.upload(to.device, value);
}

}  // namespace stowage
