// Underway: shows the user what a program does before its first step.
//
// After a second the user sees it: on a terminal (stderr) as one line that is rewritten, with the seconds so
// far and the share that is done where that is known; elsewhere as one line on stdout. A signal that asks the
// run to stop (interrupt.h) ends the program within a fraction of a second, even in the midst of work:
// `OnAbandon` objects undo their part, and the exit code is 130.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <list>
#include <string>
#include <thread>

#include "src/base/mutex.h"

namespace stowage {

// Calls `undo` if the program is abandoned while this object lives. `undo` runs on another thread than the
// work, which still runs meanwhile and never ends, so `undo` must leave alone everything that the work uses.
class OnAbandon {
 public:
  explicit OnAbandon(std::function<void()> undo);
  ~OnAbandon();
  OnAbandon(const OnAbandon&) = delete;
  OnAbandon& operator=(const OnAbandon&) = delete;

 private:
  std::list<std::function<void()>>::iterator place_;
};

// Another reason to abandon the work under way, as long as this lives: `why` is called a few times a second,
// on another thread, and returns what to say, "" as long as there is no reason. The exit code is then 1.
class EndOfWork {
 public:
  explicit EndOfWork(std::function<std::string()> why);
  ~EndOfWork();
  EndOfWork(const EndOfWork&) = delete;
  EndOfWork& operator=(const EndOfWork&) = delete;

 private:
  std::list<std::function<std::string()>>::iterator place_;
};

struct UnderwayLine {
  std::string label;   // "planning"
  std::string what;    // "1,204 operations"
  double seconds = 0;  // seconds passed so far
  double share = -1;   // part of the work that is done, 0 to 1; negative: not known
};
// Returns a line such as "planning 1,204 operations: 45%, 3 s", cut to a terminal's columns.
std::string terminal_line(const UnderwayLine& line, int columns);
// Returns a line such as "planning 1,204 operations\n", in the columns of the table that follows.
std::string plain_line(const UnderwayLine& line);

class Underway {
 public:
  Underway(std::string label, std::string what, std::chrono::milliseconds patience = std::chrono::seconds(1));
  ~Underway();  // removes the line from the terminal
  Underway(const Underway&) = delete;
  Underway& operator=(const Underway&) = delete;

  // Sets how much of the work is done, 0 to 1. Any thread.
  void progress(double share) { share_ = share; }

 private:
  void watch();
  void show(double seconds);

  UnderwayLine line_;
  const std::chrono::milliseconds patience_;
  std::atomic<double> share_ = -1;
  bool shown_ = false;  // used by the watcher alone until it has ended
  Mutex mutex_;
  CondVar changed_;
  bool over_ STOWAGE_GUARDED_BY(mutex_) = false;
  std::thread watcher_;  // the last member, since the thread uses the others
};

}  // namespace stowage
