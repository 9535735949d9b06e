#include "tools/cli/cluster_answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "stowage/error.h"
#include "tools/answer/parallel_trace.h"
#include "tools/console/text.h"

namespace stowage {
namespace {

using ClusterJson = nlohmann::ordered_json;

constexpr std::size_t most_alternatives = 5;

std::string shape_text(const GridShape& shape) {
  const std::string ranges = shape.ranges == 1 ? "" : fmt::format(" of {} ranges", shape.ranges);
  return fmt::format("{} stage{}{} x {} part{} x {} split, {} micro-batch{} of {}", shape.stages,
                     shape.stages == 1 ? "" : "s", ranges, shape.parts, shape.parts == 1 ? "" : "s",
                     shape.split, shape.micro_batches, shape.micro_batches == 1 ? "" : "es",
                     shape.samples * shape.parts);
}

std::string order_text(const GridShape& shape) {
  if (shape.stages == 1) return "";
  if (shape.ranges > 1) return ", breadth-first";
  return shape.order == GridOrder::gpipe ? ", GPipe" : ", 1F1B";
}

std::string limit_text(Bytes bytes) { return bytes == unlimited ? "no limit" : format_bytes(bytes); }

double largest(const std::vector<double>& seconds) {
  return *std::max_element(seconds.begin(), seconds.end());
}

// Returns how much slower the slowest stage is than the average one: 1 is even.
double balance(const Grid& grid) {
  const double all = std::accumulate(grid.seconds.begin(), grid.seconds.end(), 0.0);
  return all > 0 ? largest(grid.seconds) * static_cast<double>(grid.seconds.size()) / all : 1;
}

// Returns the share of the step in which the stage waits for others.
double bubble(const Grid& grid, std::size_t stage) {
  return grid.step_seconds > 0 ? 1 - grid.seconds[stage] / grid.step_seconds : 0;
}

std::vector<std::uint32_t> equal_cuts(std::uint32_t half_blocks, int stages) {
  std::vector<std::uint32_t> cuts;
  for (int s = 0; s <= stages; ++s)
    cuts.push_back(half_blocks * static_cast<std::uint32_t>(s) / static_cast<std::uint32_t>(stages));
  return cuts;
}

// Returns the shape by which `stowage plan --devices N` trains: a micro-batch for each device.
GridShape data_parallel(const ClusterQuestion& question) {
  const std::int64_t batch = question.model.config.batch;
  int parts = std::bit_floor(static_cast<unsigned>(question.devices()));
  while (batch % parts != 0) parts /= 2;
  return {1, parts, 1, batch / parts, 1, GridOrder::one_f_one_b};
}

// Returns the shape of Narayanan et al. (SC 2021), section 5.4: products split among the devices of a node,
// then a stage for each node. Nothing if one device of a node is all that can share a product.
std::optional<GridShape> tensor_first(const ClusterQuestion& question, std::uint32_t half_blocks) {
  int split = 1;
  while (2 * split <= question.devices_per_node && can_split(question.model.config, 2 * split)) split *= 2;
  if (split == 1) return {};
  const int stages = std::min(question.devices() / split, static_cast<int>(half_blocks));
  return GridShape{stages, 1, split, 1, question.model.config.batch, GridOrder::one_f_one_b};
}

// Times the grid of a rule; only its lower bound if that is no less than `best`, or if the search was
// stopped. The limit of the search's work does not count here: the answer is never slower than a rule's grid.
OthersGrid time_others(ModelCosts& costs, std::string name, const GridShape& shape,
                       const std::vector<std::uint32_t>& cuts, const ClusterQuestion& question,
                       const ClusterLimits& limits, double best) {
  OthersGrid others{std::move(name), {}, false};
  for (const Rung rung : {Rung::sums, Rung::bounds, Rung::plans}) {
    if (rung > question.highest) break;
    const bool goes_on = costs.may_plan(shape) && !costs.was_cancelled() && limits.keep_going(others.name);
    if (rung > Rung::sums && !goes_on) break;
    const std::optional<Grid> grid = time_grid(costs, shape, cuts, rung);
    if (rung > Rung::sums && costs.was_cancelled()) break;
    others.grid = grid;
    if (!grid) break;
    others.is_bound = rung < question.highest;
    if (grid->step_seconds >= best) break;
  }
  return others;
}

std::string range_text(const ClusterAnswer& answer, const HalfBlocks& range) {
  const auto name = [&](std::uint32_t block) { return answer.half_blocks[block]; };
  if (range.last - range.first == 1) return name(range.first);
  return fmt::format("{} to {}", name(range.first), name(range.last - 1));
}

void add_stages(std::string& text, const ClusterAnswer& answer) {
  const Grid& grid = answer.best();
  text += fmt::format("\n{:<6}{:<28}{:>8}{:>11}{:>9}{:>12}{:>12}{:>12}{:>12}{:>12}{:>13}\n", "stage",
                      "half-blocks", "ahead", "seconds", "bubble", "peak", "host", "streamed", "offloaded",
                      "rebuilt", "bound by");
  for (std::size_t s = 0; s < grid.seconds.size(); ++s) {
    const std::vector<HalfBlocks> ranges = ranges_of(grid.shape, grid.cuts, static_cast<int>(s));
    text += fmt::format("{:<6}{:<28}{:>8}{:>11}{:>9}", s, range_text(answer, ranges.front()),
                        grid.shape.stages == 1 ? "-" : std::to_string(grid.shape.ahead(static_cast<int>(s))),
                        format_seconds(grid.seconds[s]), percent(bubble(grid, s)));
    if (!grid.plans.empty()) {
      const StagePlan& plan = grid.plans[s];
      text += fmt::format("{:>12}{:>12}{:>12}{:>12}{:>12}{:>13}", format_bytes(plan.peak),
                          format_bytes(plan.host), format_bytes(plan.streamed), format_bytes(plan.offloaded),
                          format_bytes(plan.recomputed), plan.bound_by);
    }
    text += '\n';
    for (std::size_t r = 1; r < ranges.size(); ++r)
      text += fmt::format("{:<6}{}\n", "", range_text(answer, ranges[r]));
  }
}

std::string seconds_text(const Grid& grid, bool is_bound) {
  return fmt::format("{}{}", is_bound ? "at least " : "", format_seconds(grid.step_seconds));
}

// Returns why a grid that is slower than the best one loses.
std::string why_text(const Grid& grid) {
  if (grid.seconds.size() == 1)
    return grid.plans.empty() ? "" : fmt::format("bound by {}", grid.plans[0].bound_by);
  const auto slowest = static_cast<std::size_t>(std::max_element(grid.seconds.begin(), grid.seconds.end()) -
                                                grid.seconds.begin());
  std::string why = fmt::format("stage {} takes {}", slowest, format_seconds(grid.seconds[slowest]));
  if (!grid.plans.empty()) why += fmt::format(", bound by {}", grid.plans[slowest].bound_by);
  return why + fmt::format("; waits {} of the step", percent(bubble(grid, slowest)));
}

void add_alternatives(std::string& text, const ClusterAnswer& answer) {
  std::vector<std::pair<const Grid*, bool>> shown;
  for (std::size_t i = 1; i < answer.search.grids.size(); ++i)
    shown.emplace_back(&answer.search.grids[i], false);
  for (const Grid& grid : answer.search.below) shown.emplace_back(&grid, true);
  std::stable_sort(shown.begin(), shown.end(), [](const auto& a, const auto& b) {
    return a.first->step_seconds < b.first->step_seconds;
  });
  text += fmt::format("\n{:<72}{:>18}  {}\n", "next best", "step", "why it loses");
  for (std::size_t i = 0; i < std::min(most_alternatives, shown.size()); ++i)
    text += fmt::format("{:<72}{:>18}  {}\n", shape_text(shown[i].first->shape),
                        seconds_text(*shown[i].first, shown[i].second), why_text(*shown[i].first));
}

void add_others(std::string& text, const ClusterAnswer& answer) {
  text += fmt::format("\n{:<72}{:>18}  {}\n", "others' rules, same costs", "step", "grid");
  for (const OthersGrid& others : answer.others) {
    const std::string step = others.grid ? seconds_text(*others.grid, others.is_bound) : "does not fit";
    text += fmt::format("{:<72}{:>18}  {}\n", others.name, step,
                        others.grid ? shape_text(others.grid->shape) : "");
  }
}

const char* order_name(const GridShape& shape) {
  if (shape.ranges > 1) return "breadth_first";
  return shape.order == GridOrder::gpipe ? "gpipe" : "1f1b";
}

ClusterJson grid_json(const Grid& grid, bool is_bound) {
  ClusterJson json{{"stages", grid.shape.stages},
                   {"parts", grid.shape.parts},
                   {"split", grid.shape.split},
                   {"micro_batches", grid.shape.micro_batches},
                   {"micro_batch_samples", grid.shape.samples * grid.shape.parts},
                   {"order", order_name(grid.shape)},
                   {"ranges", grid.shape.ranges},
                   {"cuts", grid.cuts},
                   {"rung", to_string(grid.rung)},
                   {"is_bound", is_bound},
                   {"step_seconds", grid.step_seconds},
                   {"stage_seconds", grid.seconds}};
  ClusterJson plans = ClusterJson::array();
  for (std::size_t s = 0; s < grid.plans.size(); ++s) {
    const StagePlan& plan = grid.plans[s];
    plans.push_back({{"order", to_string(plan.order)},
                     {"seconds", plan.seconds},
                     {"lower_bound_seconds", plan.bound_seconds},
                     {"bound_by", plan.bound_by},
                     {"bubble", bubble(grid, s)},
                     {"peak_bytes", plan.peak},
                     {"host_bytes", plan.host},
                     {"resident_bytes", plan.resident},
                     {"streamed_bytes", plan.streamed},
                     {"kept_bytes", plan.kept},
                     {"offloaded_bytes", plan.offloaded},
                     {"recomputed_bytes", plan.recomputed}});
  }
  if (!plans.empty()) json["plans"] = std::move(plans);
  return json;
}

}  // namespace

ClusterAnswer answer(const ClusterQuestion& question, const ClusterLimits& limits, double watts_per_device,
                     double watts_per_node) {
  ModelCosts costs(question);
  ClusterAnswer answer;
  const std::uint32_t all = costs.half_blocks();
  for (std::uint32_t block = 0; block < all; ++block) answer.half_blocks.push_back(costs.name_of(block));
  answer.tokens = static_cast<std::uint64_t>(question.model.tokens());
  const double infinite = std::numeric_limits<double>::infinity();
  answer.others.push_back(time_others(costs, "data parallel alone (stowage plan --devices)",
                                      data_parallel(question), {0, all}, question, limits, infinite));
  GridQuestion search;
  search.shapes = shapes_of(question, all);
  search.highest = question.highest;
  search.most_work = limits.most_work;
  search.keep_going = [&](const std::string& doing) {
    return !costs.was_cancelled() && limits.keep_going(doing);
  };
  const OthersGrid& known = answer.others.front();
  const bool is_known = known.grid && !known.is_bound;
  if (is_known) {
    search.below = known.grid->step_seconds;
    std::erase(search.shapes, known.grid->shape);
  }
  answer.search = search_grids(costs, search);
  if (is_known) {
    ++answer.search.shapes;
    const bool has_bound = !known.grid->plans.empty();
    answer.search.bound = std::min(
        answer.search.bound, has_bound ? known.grid->plans.front().bound_seconds : known.grid->step_seconds);
  }
  std::vector<Grid>& grids = answer.search.grids;
  const auto add_known = [&](const OthersGrid& others) {
    if (!others.grid || others.is_bound) return;
    const bool is_there = std::any_of(grids.begin(), grids.end(), [&](const Grid& grid) {
      return grid.shape == others.grid->shape && grid.cuts == others.grid->cuts;
    });
    if (!is_there) grids.push_back(*others.grid);
    std::stable_sort(grids.begin(), grids.end(),
                     [](const Grid& a, const Grid& b) { return a.step_seconds < b.step_seconds; });
  };
  add_known(answer.others.front());
  const int stages = std::min(question.devices(), static_cast<int>(all));
  const GridShape gpipe{stages, 1, 1, 1, question.model.config.batch, GridOrder::gpipe};
  answer.others.push_back(time_others(costs, "GPipe, equal numbers of half-blocks", gpipe,
                                      equal_cuts(all, stages), question, limits,
                                      grids.empty() ? infinite : grids.front().step_seconds));
  add_known(answer.others.back());
  if (const std::optional<GridShape> megatron = tensor_first(question, all)) {
    answer.others.push_back(time_others(costs, "Megatron-LM: split within a node, then stages", *megatron,
                                        equal_cuts(all, megatron->stages), question, limits,
                                        grids.empty() ? infinite : grids.front().step_seconds));
    add_known(answer.others.back());
  }
  if (!answer.feasible()) {
    answer.least_refused = costs.least_refused();
    return answer;
  }
  const GridShape& best = answer.best().shape;
  answer.budget = costs.budget(best);
  const int nodes = (best.devices() + question.devices_per_node - 1) / question.devices_per_node;
  answer.watts = watts_per_device * best.devices() + watts_per_node * nodes;
  return answer;
}

std::string trace_of(const ClusterAnswer& answer) {
  const Grid& grid = answer.best();
  const std::int64_t passes = grid.shape.micro_batches * grid.shape.ranges;
  const std::int64_t events = (2 * passes + 1) * grid.shape.stages;
  if (events > most_traced_events)
    throw InvalidInput(
        fmt::format("--trace: a step of the best grid has {} events, and {} are the limit; leave it out",
                    events, most_traced_events));
  PipelineQuestion question;
  question.schedule =
      grid.shape.order == GridOrder::gpipe ? PipelineSchedule::gpipe : PipelineSchedule::breadth_first;
  question.virtual_stages = grid.shape.ranges;
  question.micro_batches = grid.shape.micro_batches;
  std::vector<std::string> names;
  std::vector<double> rests;
  for (std::size_t s = 0; s < grid.seconds.size(); ++s) {
    const double way = grid.ways[s];
    const double forward = grid.plans.empty() ? way / 3 : grid.plans[s].forward_way_seconds;
    question.times.push_back({forward, way - forward});
    std::string name;
    for (const HalfBlocks& range : ranges_of(grid.shape, grid.cuts, static_cast<int>(s)))
      name += (name.empty() ? "" : ", ") + range_text(answer, range);
    names.push_back(std::move(name));
    rests.push_back(grid.seconds[s] - way * static_cast<double>(passes));
    question.links.push_back({s < grid.sends.size() ? grid.sends[s] : way_back_seconds(grid.sends), 0});
  }
  // All ranges have the times and links of the first one.
  const std::size_t stages = question.times.size();
  for (std::size_t i = stages; i < stages * static_cast<std::size_t>(grid.shape.ranges); ++i) {
    question.times.push_back(question.times[i - stages]);
    question.links.push_back(question.links[i - stages]);
  }
  question.links.pop_back();
  return trace_of_pipeline(std::move(question), names, rests, "updates, and waits for transfers");
}

std::string command_of(const ClusterQuestion& question, const Grid& grid) {
  if (grid.shape.stages > 1 || grid.shape.split > 1 || question.nodes > 1 ||
      question.model.family != &gpt_family)
    return "";
  return fmt::format("train_gpt --devices {} --micro-batches {}", grid.shape.parts,
                     grid.shape.micro_batches * grid.shape.parts);
}

std::string describe(const ClusterQuestion& question, const ClusterAnswer& answer) {
  Lines lines;
  lines.add("model", "{}, {}", describe(question.model), to_string(question.model.type));
  lines.add("batch", "{} samples of {} tokens: {} tokens", question.model.config.batch,
            question.model.config.sequence, grouped(answer.tokens));
  lines.add("cluster", "{} node{} of {} x {}", question.nodes, question.nodes == 1 ? "" : "s",
            question.devices_per_node, question.machine.device);
  if (question.nodes > 1)
    lines.add("  network", "{}/s for a device, {}/s for a node",
              format_bytes(static_cast<Bytes>(question.network.device_bytes_per_second)),
              format_bytes(static_cast<Bytes>(question.network.node_bytes_per_second)));
  if (!answer.feasible()) {
    lines.add("best grid", "none of {} grids fits{}", answer.search.shapes,
              answer.search.stopped || answer.search.limited ? " so far; the search ended early" : "");
    if (const auto& least = answer.least_refused)
      lines.add("", "of the stages that were planned, the one that asks for least needs {} of {} memory",
                exact(least->minimum), least->host ? "host" : "device");
    else
      lines.add("", "weights and state fit neither on the devices nor into host memory; give more of either");
    return std::move(lines).text();
  }
  const Grid& best = answer.best();
  lines.add("memory", "{} of each device, {} of host memory for it", limit_text(answer.budget.device),
            limit_text(answer.budget.host));
  lines.gap();
  lines.add("best grid", "{}{}", shape_text(best.shape), order_text(best.shape));
  lines.add("step", "{} predicted by {}, {} tokens/s", format_seconds(best.step_seconds),
            to_string(best.rung),
            grouped(static_cast<std::uint64_t>(static_cast<double>(answer.tokens) / best.step_seconds)));
  lines.add("balance", "{:.3f}, the slowest stage over the mean", balance(best));
  if (answer.watts > 0)
    lines.add("energy", "{:.3g} joules a token",
              answer.watts * best.step_seconds / static_cast<double>(answer.tokens));
  const std::string bound =
      answer.search.bound > 0
          ? fmt::format("no grid of these cuts takes less than {}, {:.1f}% less",
                        format_seconds(answer.search.bound), 100 * (1 - 1 / (1 + answer.gap())))
          : "not all grids have sums";
  lines.add("search", "{} grids by sums, {} plans of stages; {}{}", answer.search.shapes, answer.search.work,
            bound,
            answer.search.stopped   ? "; stopped"
            : answer.search.limited ? "; ended at --limit"
                                    : "");
  const std::string command = command_of(question, best);
  lines.add("to train", "{}", command.empty() ? "no program here runs this grid yet" : command);
  std::string text = std::move(lines).text();
  add_stages(text, answer);
  add_alternatives(text, answer);
  add_others(text, answer);
  return text;
}

nlohmann::ordered_json to_json(const ClusterQuestion& question, const ClusterAnswer& answer) {
  ClusterJson json{{"model", describe(question.model)},
                   {"nodes", question.nodes},
                   {"devices_per_node", question.devices_per_node},
                   {"batch", question.model.config.batch},
                   {"tokens", answer.tokens},
                   {"feasible", answer.feasible()},
                   {"shapes", answer.search.shapes},
                   {"work", answer.search.work},
                   {"stopped", answer.search.stopped},
                   {"limited", answer.search.limited}};
  if (answer.feasible()) {
    json["device_memory"] =
        answer.budget.device == unlimited ? ClusterJson() : ClusterJson(answer.budget.device);
    json["host_memory"] = answer.budget.host == unlimited ? ClusterJson() : ClusterJson(answer.budget.host);
    json["bound_seconds"] = answer.search.bound;
    json["gap"] = answer.gap();
    json["balance"] = balance(answer.best());
    if (answer.watts > 0)
      json["joules_per_token"] =
          answer.watts * answer.best().step_seconds / static_cast<double>(answer.tokens);
    const std::string command = command_of(question, answer.best());
    json["command"] = command.empty() ? ClusterJson() : ClusterJson(command);
  }
  ClusterJson grids = ClusterJson::array();
  for (const Grid& grid : answer.search.grids)
    if (grids.size() <= most_alternatives) grids.push_back(grid_json(grid, false));
  json["grids"] = std::move(grids);
  ClusterJson below = ClusterJson::array();
  for (const Grid& grid : answer.search.below)
    if (below.size() < most_alternatives) below.push_back(grid_json(grid, true));
  json["not_planned"] = std::move(below);
  ClusterJson others = ClusterJson::array();
  for (const OthersGrid& rule : answer.others) {
    ClusterJson of{{"name", rule.name}, {"fits", rule.grid.has_value()}};
    if (rule.grid) of["grid"] = grid_json(*rule.grid, rule.is_bound);
    others.push_back(std::move(of));
  }
  json["others"] = std::move(others);
  return json;
}

}  // namespace stowage
