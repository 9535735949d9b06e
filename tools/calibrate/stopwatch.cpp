#include "tools/calibrate/stopwatch.h"

#include <algorithm>

namespace stowage {

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double Stopwatch::seconds(const std::function<void()>& enqueue) {
  start();
  enqueue();
  stop();
  return read();
}

double Stopwatch::median_seconds(int repetitions, const std::function<void()>& enqueue) {
  seconds(enqueue);
  std::vector<double> all;
  for (int i = 0; i < repetitions; ++i) all.push_back(seconds(enqueue));
  return median(std::move(all));
}

double Stopwatch::read() {
  device_.synchronise(end_.id());
  return device_.elapsed_seconds(begin_.id(), end_.id());
}

}  // namespace stowage
