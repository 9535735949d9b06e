#include "src/cli/plan_command.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "stowage/error.h"

namespace stowage {
namespace {

constexpr std::uintmax_t largest_file = 1ULL << 30;

std::string read_file(const std::string& path) {
  std::error_code error;
  std::uintmax_t size = std::filesystem::file_size(path, error);
  if (error)
    throw InvalidInput("cannot read '" + path + "': " + error.message() +
                       "; give a graph saved with to_json");
  if (size > largest_file) throw InvalidInput("'" + path + "' is larger than 1 GiB, so it is no saved graph");
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file) throw InvalidInput("cannot read '" + path + "'");
  return text;
}

void write_file(const std::string& path, const std::string& text) {
  std::string temporary = path + ".part";
  {
    std::ofstream file(temporary, std::ios::binary);
    file << text;
    if (!file.flush()) {
      std::remove(temporary.c_str());
      throw InvalidInput("cannot write '" + path + "'; choose another place");
    }
  }
  std::filesystem::rename(temporary, path);
}

std::string describe(const Bytes bytes) { return fmt::format("{} ({} bytes)", format_bytes(bytes), bytes); }

std::string describe(const Plan& plan, const Budget& budget, Bytes need, Bytes minimum) {
  std::string budget_text = budget.device == unlimited ? "unlimited" : describe(budget.device);
  return fmt::format(
      "fits          yes\nneed          {}\nminimum       {}\nbudget        {}\npeak          {}\n"
      "host          {}\ntraffic       {} in, {} out per step\n"
      "step          {:.6g} s predicted, {:.6g} s lower bound ({})\n",
      describe(need), describe(minimum), budget_text, describe(plan.device_peak_bytes),
      describe(plan.host_bytes), format_bytes(plan.h2d_bytes), format_bytes(plan.d2h_bytes),
      plan.predicted_step_seconds, plan.lower_bound_seconds, plan.bound_by);
}

}  // namespace

int run_plan_command(const PlanCommand& command, std::string& output) {
  Graph graph = graph_from_json(read_file(command.graph_file));
  auto result = make_plan(graph, command.machine, command.budget, command.options);
  if (const auto* none = std::get_if<Infeasible>(&result)) {
    output +=
        fmt::format("fits          no: {} needs {} of {} memory; the smallest budget that works is {}\n",
                    none->op, describe(none->minimum), none->host ? "host" : "device", none->minimum);
    return 2;
  }
  const Plan& plan = std::get<Plan>(result);
  const std::vector<std::string> findings = validate(graph, plan, command.budget);
  if (!findings.empty())
    throw InvalidInput("'" + command.graph_file + "' has no sound plan: " + findings.front() +
                       "; check the graph's update phase");
  if (!command.plan_file.empty()) write_file(command.plan_file, to_json(plan));
  output += describe(plan, command.budget, need_bytes(graph, command.machine),
                     minimum_bytes(graph, command.machine, command.options));
  return 0;
}

}  // namespace stowage
