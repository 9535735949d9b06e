#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cmath>
#include "stowage/planner.h"
#include "tests/offload/oracle/search.h"
#include "tests/offload/oracle/small_graph.h"
#include "tests/offload/oracle/witness.h"
using namespace stowage;
int main(int argc, char** argv) {
  int from = argc > 1 ? atoi(argv[1]) : 0, to = argc > 2 ? atoi(argv[2]) : 20;
  bool verbose = argc > 3;
  for (int seed = from; seed < to; ++seed) {
    auto inst = oracle::small_instance(seed);
    Bytes least = minimum_bytes(inst.graph, inst.machine), need = need_bytes(inst.graph, inst.machine);
    oracle::Game game(inst.graph, inst.machine);
    printf("seed %d %s choices %.0f min %llu need %llu\n", seed, inst.shape.c_str(), game.size(), (unsigned long long)least, (unsigned long long)need);
    for (double f : {-0.1, 0.0, 0.15, 0.3, 0.5, 0.75, 1.0}) {
      Bytes budget = f < 0 ? least * 9 / 10 : least + static_cast<Bytes>(f * double(need > least ? need - least : 0));
      auto t0 = std::chrono::steady_clock::now();
      auto r = make_plan(inst.graph, inst.machine, {budget, unlimited});
      auto t1 = std::chrono::steady_clock::now();
      oracle::Schedule best;
      int tries = 0; double upper = INFINITY; bool full = true; std::string complaints;
      auto s = oracle::search(game, align_up(budget, 256), 2000000, [&](const oracle::Schedule& x) {
        if (tries++ == 0) best = x;
        bool c = true;
        auto w = oracle::make_witness(inst.graph, x, budget, c);
        full &= c;
        if (!w) return tries > 20;
        for (auto& f : validate(inst.graph, *w, {budget, unlimited})) complaints += f + "\n";
        upper = simulate(inst.graph, *w, inst.machine).step_seconds;
        best = x;
        return true; });
      auto t2 = std::chrono::steady_clock::now();
      double p = std::holds_alternative<Plan>(r) ? std::get<Plan>(r).predicted_step_seconds : INFINITY;
      printf("  f %.2f budget %llu planner %.6f ms oracle %.6f ms upper %.6f (%d%s) ratio %.4f %s labels %zu  (%.1f ms, %.1f ms)\n", f, (unsigned long long)budget, p * 1e3, s.lower * 1e3, upper * 1e3, tries, full ? "" : "!", p / s.lower,
             s.complete ? "" : "INCOMPLETE", s.labels, std::chrono::duration<double>(t1 - t0).count() * 1e3, std::chrono::duration<double>(t2 - t1).count() * 1e3);
      if (!complaints.empty()) printf("COMPLAINTS: %s\n", complaints.c_str());
      if (verbose && s.lower < 1e9) {
        printf("     oracle: %s\n", game.describe(best.choice).c_str());
        if (auto* plan = std::get_if<Plan>(&r)) {
          printf("     planner: ");
          for (auto& b : plan->buckets) printf("%s %s, ", b.name.c_str(), std::string(to_string(b.residency)).c_str());
          printf("\n");
        }
      }
    }
    fflush(stdout);
  }
}
