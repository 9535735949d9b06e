// Job: the processes that train one model together, each of them a rank with one device. Rank 0 leads: it
// alone prints, plans and writes files. A program that no launcher has started is a job of one process, which
// loads no MPI.
//
// Calls that say `together` are made by all ranks, in the same order. A rank that fails elsewhere tells the
// others (`fail`), and a rank that dies is found out. After that each such call throws CommunicatorError,
// which names the rank, and the work under way (tools/console/underway.h) ends.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "stowage/channel.h"
#include "stowage/communicator.h"
#include "stowage/error.h"
#include "stowage/rank_launch.h"
#include "tools/console/underway.h"

namespace stowage::samples {

// For ChannelOptions::waits.
class WaitingLines {
 public:
  // Prints for which ranks `rank` waits, after ten seconds and each minute; prints at once which ranks stand
  // still. A rank that works is waited for without end. If a rank stands still and the user asks to stop,
  // throws CommunicatorError.
  void report(const Waiting& waiting, int rank);

 private:
  std::chrono::steady_clock::time_point next_line_{};
  std::vector<int> standing_;  // ranks that the last line named as standing still
};

// Another rank has failed too, and reports it. The program ends with this exit code and prints nothing.
class ReportedByOtherRank : public Error {
 public:
  explicit ReportedByOtherRank(int exit_code) : Error("another rank tells"), exit_code_(exit_code) {}
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

// The program's exit code for an error: 2 for what the user can put right, else 1.
int exit_code_of(const std::exception& error);

class Job {
 public:
  // Together. Throws as open_channel does.
  explicit Job(RankLaunch launch);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  int rank() const { return launch_.rank; }
  int size() const { return launch_.size; }
  bool leads() const { return rank() == 0; }
  int ranks_here() const { return ranks_here_; }  // number of ranks on this machine
  int local_rank() const { return local_rank_; }  // number of this rank on this machine

  // Together: runs `work`, which makes no call that says so. If it fails on some ranks, all throw: the first
  // of them its own error, the others ReportedByOtherRank. A CommunicatorError of another communicator, which
  // `work` uses, is thrown at once.
  void together(const std::function<void()>& work);
  // Together: returns the text of rank 0.
  std::string from_leader(const std::string& text);
  // Together: returns the text of each rank, in their order.
  std::vector<std::string> from_each(const std::string& text);
  // Together: throws InvalidInput, on all ranks, if a rank has another text than rank 0. `what` names
  // the text.
  void expect_same(const char* what, const std::string& text);
  // Together: returns whether a rank was asked to stop (interrupt.h), which then counts as asked of all.
  bool stops();
  // Together: waits until all have come here.
  void meet();

  // Throws InvalidInput: ranks that MPI does not know train on cards alone.
  void require_simulated() const;
  // A communicator of the same ranks, for a device of the run: NCCL's for a card, else MPI's. Together.
  std::unique_ptr<Communicator> open_communicator(Device& device, const CommunicatorOptions& options) const;

  // Ends this rank's part with an error that is printed already. Tells the others unless they know; if all
  // end together, waits until the rank that reports it has printed.
  void fail(const std::exception& error) noexcept;
  // Tells the others that this rank ends, and why. Any thread.
  void abandon(const std::string& why) noexcept;

 private:
  RankLaunch launch_;
  int ranks_here_ = 1;
  int local_rank_ = 0;
  bool all_end_ = false;                   // `together` has failed, and all ranks end
  std::atomic<bool> is_reported_ = false;  // the user has been told this rank's error
  WaitingLines waiting_lines_;
  std::shared_ptr<Channel> channel_;  // null: the job has one rank
  std::optional<EndOfWork> end_of_work_;
  std::optional<OnAbandon> on_abandon_;
};

}  // namespace stowage::samples
