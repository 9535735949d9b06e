// Measures what gradient groups cost a plan, for each number of groups in both orders of micro-batches: need
// and minimum, and at some budgets host bytes, traffic and predicted time. Prints Markdown.
//
//   group_costs --gpt 12x768 --machine rtx4090 [--batch 8] [--micro-batches 8] [--sequence 1024]
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <cstdio>
#include <string>
#include <variant>

#include "src/machine/chosen_machine.h"
#include "stowage/machine_file.h"
#include "stowage/planner.h"
#include "tools/choices/machine_choice.h"
#include "tools/choices/model_spec.h"

namespace stowage {
namespace {

double mib(Bytes bytes) { return static_cast<double>(bytes) / (1 << 20); }

void print_row(const Graph& graph, const Machine& machine, MicroBatchOrder order, double share) {
  const PlanOptions options{.order = order};
  const Bytes least = minimum_bytes(graph, machine, options), need = need_bytes(graph, machine);
  const Bytes budget =
      need > least ? least + static_cast<Bytes>(share * static_cast<double>(need - least)) : least;
  const auto planned = make_plan(graph, machine, {.device = budget}, options);
  const Plan& plan = std::get<Plan>(planned);
  fmt::print(
      "| {} | {} | {:.1f} | {:.1f} | {:.0f} % | {:.1f} | {:.1f} | {:.1f} | {:.1f} | {:.4f} | {:.4f} |\n",
      graph.gradient_groups, to_string(order), mib(need), mib(least), 100 * share,
      mib(plan.device_peak_bytes), mib(plan.host_bytes), mib(plan.h2d_bytes), mib(plan.d2h_bytes),
      plan.predicted_step_seconds, plan.lower_bound_seconds);
  std::fflush(stdout);
}

void run(ModelWords words, const std::string& machine_name) {
  const MachineFile file = read_machine(machine_name, machines_folder());
  fmt::print(
      "| groups | order | need | minimum | budget | arena | host | h2d | d2h | step, s | bound, s |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|\n");
  for (const MicroBatchOrder order : {MicroBatchOrder::layer_major, MicroBatchOrder::ahead(1)})
    for (const double share : {0.0, 0.1, 0.5, 1.0})
      for (std::int64_t groups = 1; groups <= std::stoll(words.micro_batches); groups *= 2) {
        words.gradient_groups = std::to_string(groups);
        Graph graph = build(*model_spec(words, usual_type(file)));
        Machine machine = machine_for(file, work_type(graph));
        set_op_seconds(file, work_type(graph), machine, graph);
        print_row(graph, machine, order, share);
      }
}

}  // namespace
}  // namespace stowage

int main(int count, char** arguments) {
  CLI::App app{"What gradient groups cost a plan; prints Markdown, sizes in MiB"};
  stowage::ModelWords words{.gpt = "12x768", .sequence = "1024", .batch = "8", .micro_batches = "8"};
  std::string machine = "rtx4090";
  app.add_option("--gpt", words.gpt, "LAYERSxWIDTH");
  app.add_option("--machine", machine);
  app.add_option("--batch", words.batch);
  app.add_option("--micro-batches", words.micro_batches, "a power of two");
  app.add_option("--sequence", words.sequence);
  CLI11_PARSE(app, count, arguments);
  stowage::run(words, machine);
}
