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

void State::initialise(std::uint64_t seed, bool parameters) {
  std::vector<std::byte> value;
  for (TensorId id = 0; id < graph_.tensors.size(); ++id) {
    const Tensor& tensor = graph_.tensor(id);
    if (!lives_across_steps(tensor)) continue;
    if (parameters && tensor.kind == TensorKind::parameter) {
      value.resize(tensor.bytes());
      initialize(tensor, seed, value);
      write(id, value);
    } else if (std::byte* const device = homes_[id].device; device != nullptr) {
      staging_.upload(device, tensor.bytes(),
                      [](Bytes, std::span<std::byte> piece) { std::memset(piece.data(), 0, piece.size()); });
    }
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

void State::require_inside(TensorId tensor, Bytes offset, Bytes bytes) const {
  const Bytes all = graph_.tensor(tensor).bytes();
  if (offset > all || bytes > all - offset)
    throw InvalidInput(fmt::format("'{}' has {} bytes, and {} from {} on are not all of them",
                                   graph_.tensor(tensor).name, all, bytes, offset));
}

std::vector<std::byte> State::read(TensorId tensor) {
  home(tensor);  // refuses what has none before its size is taken
  std::vector<std::byte> value(graph_.tensor(tensor).bytes());
  read(tensor, 0, value);
  return value;
}

void State::read(TensorId tensor, Bytes offset, std::span<std::byte> into) {
  const Home from = home(tensor);
  require_inside(tensor, offset, into.size());
  if (from.device_leads)
    staging_.download(into, from.device + offset);
  else
    std::memcpy(into.data(), from.host + offset, into.size());
}

void State::write(TensorId tensor, std::span<const std::byte> value) {
  home(tensor);
  if (value.size() != graph_.tensor(tensor).bytes())
    throw InvalidInput(fmt::format("'{}' takes {} bytes, not {}", graph_.tensor(tensor).name,
                                   graph_.tensor(tensor).bytes(), value.size()));
  write(tensor, 0, value);
}

void State::write(TensorId tensor, Bytes offset, std::span<const std::byte> value) {
  const Home to = home(tensor);
  require_inside(tensor, offset, value.size());
  if (to.host != nullptr) std::memcpy(to.host + offset, value.data(), value.size());
  if (to.device != nullptr) staging_.upload(to.device + offset, value);
}

void State::fill(TensorId tensor, const Staging::FillPiece& piece) {
  const Home to = home(tensor);
  const Bytes bytes = graph_.tensor(tensor).bytes();
  if (to.host == nullptr) return staging_.upload(to.device, bytes, piece);
  const std::span<std::byte> own(to.host, bytes);
  piece(0, own);
  if (to.device != nullptr) staging_.upload(to.device, own);
}

}  // namespace stowage
