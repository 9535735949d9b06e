#include "offload/plan/decisions/share_program.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "offload/plan/decisions/basis_inverse.h"

namespace stowage {

// Solves one question. All its seconds and bytes are in the question's units.
class ShareTable::Decomposition {
 public:
  Decomposition(const ShareTable& table, const ShareTable::Question& question)
      : table_(table),
        question_(question),
        memory_rows_(table.memory_rows_),
        rows_(lane_rows + memory_rows_ + 1),
        fixed_(table.fixed_) {
    if (question.given) {
      const std::size_t first = table.first_[question.given->decision];
      const double count = table.count_[question.given->decision];
      for (std::size_t o = 0; o < question.given->shares.size(); ++o)
        fixed_.add(table.options_[first + o], count * question.given->shares[o]);
    }
    // Seconds by option, if memory costs nothing.
    const std::vector<double> seconds = prices(Row(lane_rows, 1));
    // Lacking all of a row's room costs more than the slowest answer takes. Lacking a part may still cost
    // less than freeing it, so the penalty rises while memory is lacking.
    penalty_ = 4;
    for (std::size_t d = 0; d < table.count_.size(); ++d)
      if (!is_given(d))
        penalty_ += table.count_[d] * *std::max_element(seconds.begin() + at(table.first_[d]),
                                                        seconds.begin() + at(table.first_[d + 1]));
    start(seconds);
  }

  ShareAnswer run() {
    constexpr int most_pivots = 2000, patience = 100;
    ShareAnswer answer;
    double before = std::numeric_limits<double>::infinity();  // the value `patience` pivots ago
    for (int i = 0, rises = 0; i < most_pivots; ++i) {
      price_rows();
      if (i % patience == 0) {
        // Rows of very unlike sizes, such as a host that takes days for its updates, lead to pivots that
        // change the value by less than the tolerance.
        if (before - value() <= question_.tolerance * std::abs(value())) break;
        before = value();
      }
      if (enter_known()) continue;
      const Row worth = multipliers();
      AnswerColumn next = column_of(cheapest(prices(worth)));
      look_at(next, worth, answer);
      const double reduced = next.price - value_of(next.entries);
      if (value() - answer.bound <= question_.tolerance * std::abs(value()) || reduced >= -epsilon) {
        if (!lacks_memory() || rises++ == penalty_rises) break;
        penalty_ *= penalty_rise;
        before = std::numeric_limits<double>::infinity();
        continue;
      }
      add(std::move(next));
      if (!pivot(first_answer() + answers_.size() - 1)) break;
    }
    report(answer);
    return answer;
  }

 private:
  static constexpr double epsilon = 1e-11;
  static constexpr double smallest_pivot = 1e-8;  // entries are about one; alike rows give smaller ones
  static constexpr double level_tolerance = 1e-9;
  static constexpr double least_lack = 1e-7;  // least lack of a memory row, in units of the rooms
  static constexpr double penalty_rise = 10;
  static constexpr int penalty_rises = 3;

  // One number for each row of the master: the lanes and cuts of the front, those of the back, the memory
  // rows, and the row that makes the fractions of all answers come to one.
  using Row = std::vector<double>;

  // An answer, which is one option for each decision: a column of the master.
  struct AnswerColumn {
    std::vector<std::uint8_t> chosen;  // chosen option of each decision
    Row entries;
    double price = 0;
  };

  static std::ptrdiff_t at(std::size_t index) { return static_cast<std::ptrdiff_t>(index); }
  bool is_given(std::size_t decision) const {
    return question_.given && question_.given->decision == decision;
  }
  double scale(std::size_t row) const { return row < lane_rows ? question_.second : question_.byte; }

  // Columns of the master by number: the lengths of the two phases, a slack for each row but the last, the
  // lack of each memory row, the answers.
  std::size_t first_slack() const { return phases; }
  std::size_t first_lack() const { return first_slack() + rows_ - 1; }
  std::size_t first_answer() const { return first_lack() + memory_rows_; }

  double cost_of(std::size_t column) const {
    if (column < phases) return 1;
    if (column < first_lack()) return 0;
    return column < first_answer() ? penalty_ : answers_[column - first_answer()].price;
  }
  void entries_of(std::size_t column, Row& entries) const {
    if (column >= first_answer()) {
      entries = answers_[column - first_answer()].entries;
      return;
    }
    entries.assign(rows_, 0);
    if (column < phases)
      std::fill_n(entries.begin() + static_cast<std::ptrdiff_t>(column * share_rows), share_rows, -1.0);
    else if (column < first_lack())
      entries[column - first_slack()] = 1;
    else
      entries[lane_rows + column - first_lack()] = -1;
  }

  // Returns the cost of each option if a unit of row r costs worth[r], 0 past its end. Adds last_row_price.
  std::vector<double> prices(const Row& worth) const {
    const std::vector<double>& price = table_.by_row_.back();
    std::vector<double> sums(price.size());
    const auto add = [&](const std::vector<double>& costs, double times) {
      for (std::size_t o = 0; o < sums.size(); ++o) sums[o] += times * costs[o];
    };
    add(price, question_.second);
    for (std::size_t row = 0; row + 1 < table_.by_row_.size(); ++row) {
      const bool is_last = row + 2 == table_.by_row_.size();
      double times = row < worth.size() ? worth[row] : 0;
      if (is_last && memory_rows_ > 0) times += question_.last_row_price;
      if (times != 0) add(table_.by_row_[row], times * scale(row));
    }
    return sums;
  }
  // Returns each decision's cheapest option.
  std::vector<std::uint8_t> cheapest(const std::vector<double>& prices) const {
    std::vector<std::uint8_t> chosen;
    chosen.reserve(table_.count_.size());
    for (std::size_t d = 0; d < table_.count_.size(); ++d) {
      const auto first = prices.begin() + at(table_.first_[d]);
      const auto last = prices.begin() + at(table_.first_[d + 1]);
      chosen.push_back(static_cast<std::uint8_t>(std::min_element(first, last) - first));
    }
    return chosen;
  }
  AnswerColumn column_of(std::vector<std::uint8_t> chosen) const {
    ShareCost sum = fixed_;
    for (std::size_t d = 0; d < chosen.size(); ++d)
      if (!is_given(d)) sum.add(table_.options_[table_.first_[d] + chosen[d]], table_.count_[d]);
    AnswerColumn answer{std::move(chosen), Row(rows_), question_.second * sum.price};
    std::copy(sum.front.begin(), sum.front.end(), answer.entries.begin());
    std::copy(sum.back.begin(), sum.back.end(), answer.entries.begin() + share_rows);
    std::copy_n(sum.memory.begin(), memory_rows_, answer.entries.begin() + lane_rows);
    for (std::size_t row = 0; row + 1 < rows_; ++row) answer.entries[row] *= scale(row);
    if (memory_rows_ > 0) answer.price += question_.last_row_price * answer.entries[rows_ - 2];
    answer.entries.back() = 1;
    return answer;
  }

  // Starts from the answer of least time if memory does not count. Slacks are basic, but for the phases'
  // lengths in the rows of their busiest lanes, and the lacks of memory rows that are exceeded.
  void start(const std::vector<double>& seconds) {
    add(column_of(cheapest(seconds)));
    const Row& first = answers_.front().entries;
    basis_.resize(rows_);
    for (std::size_t row = 0; row + 1 < rows_; ++row) basis_[row] = first_slack() + row;
    for (std::size_t phase = 0; phase < phases; ++phase) {
      const auto begin = first.begin() + static_cast<std::ptrdiff_t>(phase * share_rows);
      basis_[static_cast<std::size_t>(std::max_element(begin, begin + share_rows) - first.begin())] = phase;
    }
    for (std::size_t m = 0; m < memory_rows_; ++m)
      if (first[lane_rows + m] > question_.room[m]) basis_[lane_rows + m] = first_lack() + m;
    basis_.back() = first_answer();
    for (const std::size_t column : basis_) is_basic_[column] = 1;
    invert();
  }
  void add(AnswerColumn answer) {
    answers_.push_back(std::move(answer));
    is_basic_.resize(first_answer() + answers_.size(), 0);
  }

  void invert() {
    Row matrix, entries;
    for (const std::size_t column : basis_) {
      entries_of(column, entries);
      matrix.insert(matrix.end(), entries.begin(), entries.end());
    }
    inverse_.invert(rows_, std::move(matrix));
    levels_.assign(rows_, 0);
    const auto add = [&](std::size_t column, double times) {
      for (std::size_t i = 0; i < rows_; ++i) levels_[i] += inverse_.column(column)[i] * times;
    };
    for (std::size_t m = 0; m < memory_rows_; ++m) add(lane_rows + m, question_.room[m]);
    add(rows_ - 1, 1);
  }

  void price_rows() {
    worth_.assign(rows_, 0);
    priced_.clear();
    std::vector<std::pair<std::size_t, double>> costs;
    for (std::size_t i = 0; i < rows_; ++i)
      if (const double cost = cost_of(basis_[i]); cost != 0) costs.emplace_back(i, cost);
    for (std::size_t j = 0; j < rows_; ++j) {
      for (const auto& [i, cost] : costs) worth_[j] += cost * inverse_.column(j)[i];
      if (worth_[j] != 0) priced_.push_back(j);
    }
  }
  double value_of(const Row& entries) const {
    double sum = 0;
    for (const std::size_t row : priced_) sum += worth_[row] * entries[row];
    return sum;
  }
  double worth_of(std::size_t column) const {
    if (column >= first_answer()) return value_of(answers_[column - first_answer()].entries);
    if (column >= first_lack()) return -worth_[lane_rows + column - first_lack()];
    if (column >= first_slack()) return worth_[column - first_slack()];
    const auto begin = worth_.begin() + static_cast<std::ptrdiff_t>(column * share_rows);
    return -std::accumulate(begin, begin + share_rows, 0.0);
  }
  double value() const {
    double sum = 0;
    for (std::size_t i = 0; i < rows_; ++i) sum += cost_of(basis_[i]) * levels_[i];
    return sum;
  }

  // Lets the best known column that makes the master better enter the basis. Returns whether one entered.
  bool enter_known() {
    double best = -epsilon;
    std::size_t entering = 0;
    for (std::size_t column = 0; column < first_answer() + answers_.size(); ++column) {
      if (is_basic_[column] != 0) continue;
      const double reduced = cost_of(column) - worth_of(column);
      if (reduced < best) {
        best = reduced;
        entering = column;
      }
    }
    return best < -epsilon && pivot(entering);
  }

  // Returns the row that limits the entering column, rows_ if none does. Of rows that limit it alike, within
  // what rounding may have done to the levels, it is the one with the largest pivot (Harris, "Pivot Selection
  // Methods of the Devex LP Code", 1973).
  std::size_t leaving_row(const Row& change) const {
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < rows_; ++i)
      if (change[i] > smallest_pivot)
        least = std::min(least, (std::max(0.0, levels_[i]) + level_tolerance) / change[i]);
    std::size_t leaving = rows_;
    for (std::size_t i = 0; i < rows_; ++i)
      if (change[i] > smallest_pivot && std::max(0.0, levels_[i]) / change[i] <= least &&
          (leaving == rows_ || change[i] > change[leaving]))
        leaving = i;
    return leaving;
  }

  // Lets the column enter the basis. Returns false if no row limits it.
  bool pivot(std::size_t entering) {
    Row entries;
    entries_of(entering, entries);
    Row change = inverse_.times(entries);
    const std::size_t leaving = leaving_row(change);
    if (leaving == rows_) return false;
    is_basic_[basis_[leaving]] = 0;
    is_basic_[entering] = 1;
    basis_[leaving] = entering;
    if (++pivots_ % 32 == 0) {
      invert();
      return true;
    }
    const double level = levels_[leaving] / change[leaving];
    for (std::size_t i = 0; i < rows_; ++i)
      if (i != leaving) levels_[i] -= change[i] * level;
    levels_[leaving] = level;
    inverse_.replace(leaving, std::move(change));
    return true;
  }

  // Returns what a second of each lane and a byte of each memory row cost, as Lagrange multipliers: none is
  // below zero, and those of a phase come to at most one.
  Row multipliers() const {
    Row at(rows_ - 1);
    for (std::size_t i = 0; i + 1 < rows_; ++i) at[i] = std::max(0.0, -worth_[i]);
    for (std::size_t phase = 0; phase < phases; ++phase) {
      double sum = 0;
      for (std::size_t l = 0; l < share_rows; ++l) sum += at[phase * share_rows + l];
      if (sum <= 1) continue;
      for (std::size_t l = 0; l < share_rows; ++l) at[phase * share_rows + l] /= sum;
    }
    return at;
  }
  // Raises the bound to the one that the cheapest answer gives.
  void look_at(const AnswerColumn& cheapest, const Row& worth, ShareAnswer& answer) const {
    double sum = cheapest.price;
    for (std::size_t row = 0; row < lane_rows; ++row) sum += worth[row] * cheapest.entries[row];
    for (std::size_t m = 0; m < memory_rows_; ++m)
      sum += worth[lane_rows + m] * (cheapest.entries[lane_rows + m] - question_.room[m]);
    answer.bound = std::max(answer.bound, sum);
  }

  bool lacks_memory() const {
    for (std::size_t i = 0; i < rows_; ++i)
      if (basis_[i] >= first_lack() && basis_[i] < first_answer() && levels_[i] > least_lack) return true;
    return false;
  }

  void report(ShareAnswer& answer) const {
    answer.value = value();
    answer.fits = !lacks_memory();
    for (std::size_t d = 0; d < table_.count_.size(); ++d)
      answer.shares.emplace_back(table_.first_[d + 1] - table_.first_[d], 0.0);
    answer.memory.assign(memory_rows_, 0);
    std::array<double, share_lanes> counted{};
    for (std::size_t i = 0; i < rows_; ++i) {
      const double level = std::max(0.0, levels_[i]);
      if (basis_[i] < first_answer()) continue;
      const AnswerColumn& of = answers_[basis_[i] - first_answer()];
      for (std::size_t d = 0; d < of.chosen.size(); ++d) answer.shares[d][of.chosen[d]] += level;
      for (std::size_t m = 0; m < memory_rows_; ++m) answer.memory[m] += level * of.entries[lane_rows + m];
      for (std::size_t row = 0; row < share_rows; ++row) {
        const bool is_lane = row < share_lanes;
        counted[is_lane ? row : share_host] -= level * worth_[row] * of.entries[row];
        const std::size_t lane = is_lane ? row : row < share_lanes + share_cuts ? share_d2h : share_host;
        counted.at(lane) -= level * worth_[share_rows + row] * of.entries[share_rows + row];
      }
    }
    if (question_.given) answer.shares[question_.given->decision] = question_.given->shares;
    answer.binding =
        static_cast<LaneRole>(std::max_element(counted.begin(), counted.end()) - counted.begin());
  }

  const ShareTable& table_;
  const ShareTable::Question& question_;
  std::size_t memory_rows_, rows_;
  ShareCost fixed_;
  double penalty_ = 0;
  std::vector<AnswerColumn> answers_;
  std::vector<std::size_t> basis_;      // the basic column of each row
  std::vector<std::uint8_t> is_basic_;  // 1 for basic columns
  BasisInverse inverse_;                // inverse of the basis
  Row levels_;                          // the levels of the basic columns
  Row worth_;                           // by row: the worth of one more unit of its right-hand side
  std::vector<std::size_t> priced_;     // rows whose worth is not 0
  std::size_t pivots_ = 0;
};

void ShareCost::add(const ShareCost& other, double times) {
  for (std::size_t l = 0; l < share_rows; ++l) {
    front[l] += times * other.front[l];
    back[l] += times * other.back[l];
  }
  for (std::size_t m = 0; m < most_memory_rows; ++m) memory[m] += times * other.memory[m];
  price += times * other.price;
}

std::vector<ShareDecision> with_alike_as_one(std::vector<ShareDecision> decisions) {
  const auto key = [](const ShareDecision& decision) {
    std::vector<double> parts;
    for (const ShareCost& cost : decision.options) {
      parts.insert(parts.end(), cost.front.begin(), cost.front.end());
      parts.insert(parts.end(), cost.back.begin(), cost.back.end());
      parts.insert(parts.end(), cost.memory.begin(), cost.memory.end());
    }
    return parts;
  };
  std::map<std::vector<double>, ShareDecision> merged;
  for (ShareDecision& decision : decisions) {
    auto [at, added] = merged.emplace(key(decision), decision);
    if (!added) at->second.count += decision.count;
  }
  decisions.clear();
  for (auto& [parts, decision] : merged) decisions.push_back(std::move(decision));
  return decisions;
}

ShareTable::ShareTable(const ShareCost& fixed, const std::vector<ShareDecision>& decisions,
                       std::size_t memory_rows)
    : fixed_(fixed), memory_rows_(memory_rows), by_row_(lane_rows + memory_rows + 1) {
  for (const ShareDecision& decision : decisions) {
    first_.push_back(options_.size());
    count_.push_back(decision.count);
    options_.insert(options_.end(), decision.options.begin(), decision.options.end());
  }
  first_.push_back(options_.size());
  for (const ShareCost& option : options_) {
    for (std::size_t row = 0; row < share_rows; ++row) {
      by_row_[row].push_back(option.front[row]);
      by_row_[share_rows + row].push_back(option.back[row]);
    }
    for (std::size_t m = 0; m < memory_rows; ++m) by_row_[lane_rows + m].push_back(option.memory[m]);
    by_row_.back().push_back(option.price);
  }
}

ShareAnswer ShareTable::solve(const Question& question) const { return Decomposition(*this, question).run(); }

ShareAnswer solve(const ShareProgram& program, double tolerance) {
  return ShareTable(program.fixed, program.decisions, program.room.size())
      .solve({.room = program.room, .tolerance = tolerance});
}

}  // namespace stowage
