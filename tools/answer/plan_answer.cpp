#include "tools/answer/plan_answer.h"

#include <string_view>

#include "stowage/coded_activations.h"
#include "stowage/error.h"

namespace stowage {
namespace {

using Json = nlohmann::ordered_json;

std::string_view path_text(PeerPath path) {
  if (path == PeerPath::apart) return "";
  return path == PeerPath::link ? " over the same link" : " over the same link, through host memory,";
}

HostTally of_all(HostTally tally, std::int64_t devices) {
  for (Bytes* bytes :
       {&tally.weights, &tally.moments, &tally.gradients, &tally.undo, &tally.inputs, &tally.activations})
    *bytes *= static_cast<Bytes>(devices);
  return tally;
}

void fill(const PlanQuestion& question, const Plan& plan, PlanAnswer& answer) {
  answer.feasible = true;
  answer.order = plan.order;
  answer.arena = plan.device_peak_bytes;
  answer.live_arena = plan.live_peak_bytes;
  answer.host = plan.host_bytes * static_cast<Bytes>(answer.devices);
  answer.pinned = plan.pinned_bytes * static_cast<Bytes>(answer.devices);
  answer.h2d = plan.h2d_bytes;
  answer.d2h = plan.d2h_bytes;
  answer.peers = peer_bytes(question.graph, plan);
  answer.bucket = plan.bucket_bytes;
  answer.step_seconds = plan.predicted_step_seconds;
  answer.stall_seconds = plan.predicted_stall_seconds;
  answer.half_clipped_seconds = plan.half_clipped_seconds;
  answer.clipped_seconds = plan.clipped_seconds;
  answer.lower_bound_seconds = plan.lower_bound_seconds;
  answer.bound_by = plan.bound_by;
  answer.where = tally(question.graph, plan);
  answer.on_host = of_all(host_tally(question.graph, plan), answer.devices);
  answer.host_traffic = host_traffic(question.graph, plan, question.rates.peer_path);
  answer.host_bytes_per_second = question.rates.host_total_bytes_per_second;
}

void require_sound(const PlanQuestion& question, const Plan& plan) {
  const Budget budget = question.budget_of_each();
  const std::vector<std::string> findings =
      validate(question.graph, plan, {question.rates.arena_in(budget.device), budget.host});
  if (!findings.empty())
    throw InvalidInput(fmt::format("'{}' has no sound plan: {}; check the graph's update phase",
                                   question.source, findings.front()));
}

void add_question(Lines& lines, const PlanQuestion& question, const PlanAnswer& answer) {
  const std::string parameters = grouped(answer.parameters);
  const std::string type(to_string(work_type(question.graph)));
  if (question.model) {
    lines.add("model", "{}: {} parameters, {}", describe(*question.model), parameters, type);
    lines.add("batch", "{} samples of {} tokens: {} tokens", question.model->config.batch,
              question.model->config.sequence, grouped(answer.tokens));
    if (const auto bits = question.model->config.code_activations)
      lines.add("  codes",
                "large activations in {} bits an element for backward, which gives other gradients",
                coding_word(bits));
  } else {
    const std::string of_them = answer.trained == answer.parameters
                                    ? ""
                                    : fmt::format(", {} of them trained", grouped(answer.trained));
    lines.add("graph", "{} ops, {} parameters, {}{}", question.graph.ops.size(), parameters, type, of_them);
  }
  if (answer.devices > 1) {
    const ModelConfig& model = question.model->config;
    lines.add("devices",
              "{} that train it together, each {} samples and 1/{} of weights, gradients and state",
              answer.devices, model.batch / answer.devices, answer.devices);
    lines.add("  sums", "{} micro-batches in {} gradient groups, of all (--micro-batches, --gradient-groups)",
              model.micro_batches, model.gradient_groups);
    lines.add("  memory", "below, device memory is that of each, host memory that of all together");
  }
  if (answer.micro_batches > 1) {
    lines.add(answer.devices > 1 ? "  each in" : "  in", "{}",
              answer.feasible ? micro_batches_text(question.graph, answer.order)
                              : micro_batches_text(question.graph));
  }
  if (!question.machine.empty()) lines.add("machine", "{}", question.machine);
  if (answer.policy != Policy::automatic) lines.add("policy", "{}", policy_label(to_string(answer.policy)));
}

void add_budget(Lines& lines, const PlanAnswer& answer) {
  add_need(lines,
           {answer.need, answer.minimum, answer.budget.device, answer.overhead, answer.overhead_for_peers});
  if (answer.budget.host != unlimited)
    lines.add("host budget", "{}{}", exact(answer.budget.host), host_budget_source(answer));
}

void add_memory(Lines& lines, const PlanAnswer& answer) {
  lines.add("peak", "{}, {} of the need", exact(answer.peak), share(answer.peak, answer.need));
  lines.add("host", "{}, of it {} pinned", exact(answer.host), format_bytes(answer.pinned));
  lines.add("  on host", "{}", host_text(answer.on_host, answer.parameters));
  add_tally(lines, answer.where, answer.bucket);
  lines.add("traffic", "{} in, {} out{} per step", format_bytes(answer.h2d), format_bytes(answer.d2h),
            answer.devices == 1 ? ""
                                : fmt::format(", {} from the others{}", format_bytes(answer.peers),
                                              path_text(answer.peer_path)));
}

void add_time(Lines& lines, const PlanAnswer& answer) {
  const std::string tokens =
      answer.tokens == 0 ? ""
                         : grouped(static_cast<std::uint64_t>(answer.tokens_per_second())) + " tokens/s, ";
  lines.add("step", "{} predicted, {}stall {:.1f}%", format_seconds(answer.step_seconds), tokens,
            100 * answer.stall_seconds / answer.step_seconds);
  if (answer.where.speculated.count > 0)
    add_clipped(lines, answer.half_clipped_seconds, answer.clipped_seconds);
  lines.add("lower bound", "{} for any plan in this budget, bound by {}; the gap is {:.1f}%",
            format_seconds(answer.lower_bound_seconds), answer.bound_by, 100 * answer.gap());
  add_host_traffic(lines, answer.bound_by, answer.host_traffic, answer.host_bytes_per_second);
  if (!answer.is_complete) lines.add("search", "limited: a longer one might find a faster plan");
}

Json limit(Bytes bytes) { return bytes == unlimited ? Json() : Json(bytes); }

}  // namespace

std::string describe(const ModelSpec& spec) {
  const ModelConfig& sizes = spec.config;
  const std::string kept =
      sizes.keep_tokens == 1 ? "" : fmt::format(", {} of the tokens in MLPs", sizes.keep_tokens);
  return fmt::format("{}, {} layers, width {}, heads {}, vocabulary {}{}", spec.family->name, sizes.layers,
                     sizes.width, sizes.heads, sizes.vocabulary, kept);
}

void PlanQuestion::take_budget(std::optional<Bytes> device, std::optional<Bytes> host, int devices) {
  const Bytes card = measured != nullptr && measured->device_bytes > 0 ? measured->device_bytes : unlimited;
  budget = {device.value_or(card), host.value_or(unlimited)};
  if (host || measured == nullptr) return;
  budget.host = host_budget_for(*measured, devices);
  host_from_machine = budget.host != unlimited;
}

void PlanQuestion::take(Graph step) {
  graph = std::move(step);
  if (measured == nullptr) return;
  require_rates(*measured, graph);
  set_op_seconds(*measured, work_type(graph), rates, graph);
}

Budget PlanQuestion::budget_of_each() const {
  return {budget.device, budget.host == unlimited ? unlimited : budget.host / static_cast<Bytes>(devices())};
}

std::uint64_t PlanQuestion::tokens() const {
  if (model) return static_cast<std::uint64_t>(model->tokens());
  if (graph.tokens > 0) return static_cast<std::uint64_t>(graph.tokens);
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.kind == TensorKind::input && tensor.name == "tokens")
      return static_cast<std::uint64_t>(tensor.elements());
  }
  return 0;
}

PlanAnswer answer(const PlanQuestion& question, Plan* plan) {
  Planner planner(question.graph, question.rates, question.options);
  return answer(question, planner, plan);
}

PlanAnswer answer(const PlanQuestion& question, Planner& planner, Plan* plan) {
  const Graph& graph = question.graph;
  Answer planned = planner.answer(question.budget_of_each());
  PlanAnswer answer;
  answer.policy = question.options.policy;
  answer.budget = question.budget;
  answer.host_from_machine = question.host_from_machine;
  answer.machine_file = question.machine_file;
  answer.overhead = question.rates.overhead_bytes;
  if (question.measured != nullptr)
    answer.overhead_for_peers =
        overhead_for_peers(question.measured->backend, static_cast<int>(question.devices()));
  answer.need = planned.need;
  answer.minimum = planned.minimum;
  answer.peak = planned.peak;
  const ParameterCount count = parameter_count(graph);
  answer.parameters = count.all;
  answer.trained = count.trained;
  answer.tokens = question.tokens();
  answer.micro_batches = graph.micro_batches;
  answer.gradient_groups = graph.gradient_groups;
  answer.devices = question.devices();
  answer.peer_path = question.rates.peer_path;
  if (const auto* none = std::get_if<Infeasible>(&planned.outcome)) {
    answer.lacks_host = none->host;
    answer.smallest = none->host ? none->minimum * static_cast<Bytes>(answer.devices) : none->minimum;
    answer.smallest_is_at_most = none->at_most;
    answer.op = none->op;
    return answer;
  }
  auto& made = std::get<Plan>(planned.outcome);
  require_sound(question, made);
  fill(question, made, answer);
  answer.price = planned.price;
  answer.is_complete = planned.is_complete;
  if (plan != nullptr) *plan = std::move(made);
  return answer;
}

std::string refusal(const PlanAnswer& answer) {
  const char* at_most = answer.smallest_is_at_most ? "at most " : "";
  const bool of_file = answer.lacks_host && answer.host_from_machine;
  return fmt::format("{} needs {}{} of {} memory; the smallest budget that works is {}{}{}",
                     answer.lacks_host ? "the step" : answer.op, at_most, exact(answer.smallest),
                     answer.lacks_host ? "host" : "device", at_most, answer.smallest,
                     of_file ? fmt::format(" (the budget of {} comes from the memory in --machine {}: give "
                                           "--host-memory where there is more)",
                                           exact(answer.budget.host), answer.machine_file)
                             : "");
}

void add_need(Lines& lines, const NeedLines& need) {
  lines.add("need", "{} with everything on the device and nothing recomputed", exact(need.need));
  lines.add("minimum", "{}, {} of the need", exact(need.minimum), share(need.minimum, need.need));
  lines.add("budget", "{}{}", exact(need.budget),
            need.budget == unlimited ? "" : fmt::format(", {} of the need", share(need.budget, need.need)));
  if (need.overhead > 0)
    lines.add("  in each", "{} for context and libraries{}, which no plan can use", exact(need.overhead),
              need.overhead_for_peers == 0
                  ? ""
                  : fmt::format(", {} of it to reach the others", format_bytes(need.overhead_for_peers)));
}

void add_tally(Lines& lines, const PlanTally& where, Bytes bucket) {
  lines.add("  parameters", "{} buckets resident, {} held, {} streamed; {} per bucket", text(where.resident),
            text(where.held), text(where.streamed),
            bucket == 0 ? "one tensor" : "about " + format_bytes(bucket));
  lines.add("  optimizer", "{} buckets on the host, {} on the device", text(where.optimizer_host),
            text(where.optimizer_device));
  lines.add("  activations", "{} kept, {} recomputed, {} offloaded", text(where.kept), text(where.recomputed),
            text(where.offloaded));
  lines.add("  updates", "{}", updates_text(where));
}

void add_clipped(Lines& lines, double half_clipped_seconds, double clipped_seconds) {
  lines.add("  clipped", "{} where every other step is clipped, {} where each is",
            format_seconds(half_clipped_seconds), format_seconds(clipped_seconds));
}

void add_host_traffic(Lines& lines, const std::string& bound_by, const HostTraffic& traffic,
                      double bytes_per_second) {
  if (bound_by != Plan::host_memory_binds) return;
  lines.add("  host memory", "{}; {} of this step at {:.1f} GB/s", text(traffic),
            format_seconds(static_cast<double>(traffic.total()) / bytes_per_second), 1e-9 * bytes_per_second);
}

std::string host_budget_source(const PlanAnswer& answer) {
  return answer.host_from_machine
             ? ", 15/16 of each host memory in the machine's file; --host-memory sets another"
             : "";
}

std::string describe(const PlanQuestion& question, const PlanAnswer& answer) {
  Lines lines;
  lines.add("fits", "{}", answer.feasible ? "yes" : "no: " + refusal(answer));
  add_question(lines, question, answer);
  lines.gap();
  add_budget(lines, answer);
  if (!answer.feasible) return std::move(lines).text();
  add_memory(lines, answer);
  lines.gap();
  add_time(lines, answer);
  return std::move(lines).text();
}

Json to_json(const PlanAnswer& answer) {
  const auto where_it_fits = [&](auto value) { return answer.feasible ? Json(value) : Json(); };
  Json json;
  json["feasible"] = answer.feasible;
  json["policy"] = to_string(answer.policy);
  json["emulated"] = is_emulated(answer.policy);
  json["peak_bytes"] = where_it_fits(answer.peak);
  json["device_peak_bytes"] = where_it_fits(answer.arena);  // member of the same name as in a plan's file
  json["live_peak_bytes"] = where_it_fits(answer.live_arena);
  json["minimum_device_bytes"] = answer.minimum;
  json["need_bytes"] = answer.need;
  json["budget_bytes"] = limit(answer.budget.device);
  json["overhead_bytes"] = answer.overhead;
  json["overhead_for_peers_bytes"] = answer.overhead_for_peers;
  json["host_bytes"] = where_it_fits(answer.host);
  json["host_budget_bytes"] = limit(answer.budget.host);
  json["host_budget_from_machine"] = answer.host_from_machine;
  json["pinned_bytes"] = where_it_fits(answer.pinned);
  json["h2d_bytes"] = where_it_fits(answer.h2d);
  json["d2h_bytes"] = where_it_fits(answer.d2h);
  json["peer_bytes"] = where_it_fits(answer.peers);
  json["step_seconds"] = where_it_fits(answer.step_seconds);
  json["stall_seconds"] = where_it_fits(answer.stall_seconds);
  json["half_clipped_seconds"] = where_it_fits(answer.half_clipped_seconds);
  json["clipped_seconds"] = where_it_fits(answer.clipped_seconds);
  json["activations_kept"] = where_it_fits(answer.where.kept.count);
  json["activations_recomputed"] = where_it_fits(answer.where.recomputed.count);
  json["activations_offloaded"] = where_it_fits(answer.where.offloaded.count);
  json["host_updates"] = where_it_fits(answer.where.host_updates);
  json["speculated_updates"] = where_it_fits(answer.where.speculated.count);
  json["undo_bytes"] = where_it_fits(answer.where.speculated.bytes);
  json["updates_in_backward"] = where_it_fits(answer.where.in_backward);
  json["gradient_ring_bytes"] = where_it_fits(answer.where.ring);
  json["lower_bound_seconds"] = where_it_fits(answer.lower_bound_seconds);
  json["gap"] = where_it_fits(answer.gap());
  json["bound_by"] = where_it_fits(answer.bound_by);
  json["host_update_bytes"] = where_it_fits(answer.host_traffic.updates);
  json["host_traffic_bytes"] = where_it_fits(answer.host_traffic.total());
  json["tokens_per_second"] =
      answer.feasible && answer.tokens > 0 ? Json(answer.tokens_per_second()) : Json();
  json["parameters"] = answer.parameters;
  json["micro_batches"] = answer.micro_batches;
  json["gradient_groups"] = answer.gradient_groups;
  json["devices"] = answer.devices;
  json["order"] = answer.feasible && answer.micro_batches > 1 ? Json(to_string(answer.order)) : Json();
  json["lacks"] = answer.feasible ? Json() : Json(answer.lacks_host ? "host" : "device");
  json["smallest_bytes"] = answer.feasible ? Json() : Json(answer.smallest);
  json["op"] = answer.feasible ? Json() : Json(answer.op);
  json["transfer_price_seconds"] = where_it_fits(answer.price.transfers);
  json["replay_price_seconds"] = where_it_fits(answer.price.replays);
  json["search"] = where_it_fits(answer.is_complete ? "complete" : "limited");
  json["smallest_is_at_most"] = answer.feasible ? Json() : Json(answer.smallest_is_at_most);
  json["trained_parameters"] = answer.trained;
  return json;
}

Json to_json(const PlanQuestion& question, const PlanAnswer& answer) {
  Json json = to_json(answer);
  if (question.model) {
    const ModelConfig& model = question.model->config;
    json["model"] = {{"family", question.model->family->name},
                     {"layers", model.layers},
                     {"width", model.width},
                     {"heads", model.heads},
                     {"vocabulary", model.vocabulary},
                     {"sequence", model.sequence},
                     {"batch", model.batch},
                     {"micro_batches", model.micro_batches},
                     {"gradient_groups", model.gradient_groups},
                     {"type", to_string(question.model->type)}};
    if (model.code_activations) json["model"]["code_activations"] = coding_word(model.code_activations);
    if (model.keep_tokens != 1) json["model"]["keep_tokens"] = model.keep_tokens;
  }
  if (!question.machine.empty()) json["machine"] = question.machine;
  return json;
}

}  // namespace stowage
