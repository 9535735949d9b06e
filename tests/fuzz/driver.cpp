// Runs a fuzz target without libFuzzer: its seeds and the files given, each of which must be parsed or
// refused, then mutations of the seeds. The inputs run in a child process, so that a crash, an endless loop
// (10 s of CPU time) and an allocation without bounds (2 GiB) are all seen, and the input that did it is
// kept.
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <new>

#include "tests/fuzz/mutator.h"
#include "tests/fuzz/target.h"

#if defined(__SANITIZE_ADDRESS__)
// Read by the sanitizer before main.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() { return "max_allocation_size_mb=2048"; }
constexpr bool own_limit = false;  // it reserves terabytes of addresses
#else
constexpr bool own_limit = true;
#endif

namespace {

namespace fs = std::filesystem;
using stowage::fuzz::Mutator;

constexpr const char* usage =
    "usage: TARGET [--runs N] [--seed N] [--only RUN] [--seconds N] [--keep FOLDER] [--write-seeds FOLDER] "
    "[FILE...]\n"
    "Runs the target on its seeds and on N mutations of them, or on the files alone.\n";

struct Options {
  std::uint64_t first = 0;
  std::uint64_t runs = 1000;
  std::uint64_t seed = 1;
  int seconds = 10;  // of CPU time per input
  std::string keep = ".";
  std::string write_seeds;
  std::vector<std::string> files;
};

std::uint64_t number(const std::string& text) {
  std::size_t used = 0;
  const std::uint64_t value = std::stoull(text, &used);
  if (used != text.size()) throw std::invalid_argument(text);
  return value;
}

Options parse(const std::vector<std::string>& words) {
  Options options;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (!word.starts_with("--")) {
      options.files.push_back(word);
      continue;
    }
    const std::string& value = words.at(++i);
    if (word == "--runs") {
      options.runs = number(value);
    } else if (word == "--seed") {
      options.seed = number(value);
    } else if (word == "--only") {
      options.first = number(value);
      options.runs = 1;
    } else if (word == "--seconds") {
      options.seconds = static_cast<int>(number(value));
    } else if (word == "--keep") {
      options.keep = value;
    } else if (word == "--write-seeds") {
      options.write_seeds = value;
    } else {
      throw std::invalid_argument(word);
    }
  }
  return options;
}

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

// Input k of all: those that are given first, then mutations.
class Inputs {
 public:
  explicit Inputs(const Options& options)
      : mutator_(stowage::fuzz::seeds(), stowage::fuzz::dictionary(), options.seed), first_(options.first) {
    if (options.files.empty()) {
      given_ = stowage::fuzz::seeds();
      count_ = given_.size() + options.runs;
      return;
    }
    for (const std::string& file : options.files) given_.push_back(contents(file));
    count_ = given_.size();
  }
  std::uint64_t count() const { return count_; }
  std::uint64_t given() const { return given_.size(); }
  std::string text(std::uint64_t k) const {
    return k < given_.size() ? given_[k] : mutator_.input(first_ + k - given_.size());
  }
  std::string name(std::uint64_t k) const {
    return k < given_.size() ? "given-" + std::to_string(k)
                             : "run-" + std::to_string(first_ + k - given_.size());
  }

 private:
  Mutator mutator_;
  std::uint64_t first_;
  std::uint64_t count_ = 0;
  std::vector<std::string> given_;
};

// What the child tells its parent, in memory of both.
struct Progress {
  std::uint64_t input = 0;
  std::uint64_t parsed_given = 0;
  std::uint64_t parsed = 0;
};

void set_limits() {
  if (!own_limit) return;
  constexpr rlim_t most = rlim_t{2} << 30;
  const rlimit limit{most, most};
  ::setrlimit(RLIMIT_AS, &limit);
}

void start_clock(int seconds) {
  itimerval timer{};
  timer.it_value.tv_sec = seconds;
  ::setitimer(ITIMER_PROF, &timer, nullptr);  // SIGPROF ends the process
}

void run_all(const Inputs& inputs, const Options& options, Progress& progress) {
  set_limits();
  for (std::uint64_t k = 0; k < inputs.count(); ++k) {
    progress.input = k;
    const std::string text = inputs.text(k);
    // A block of the input's own size: reading past its end is seen.
    const std::vector<std::uint8_t> bytes(text.begin(), text.end());
    start_clock(options.seconds);
    const std::size_t before = stowage::fuzz::parsed_parts;
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
    if (stowage::fuzz::parsed_parts == before) continue;
    ++progress.parsed;
    if (k < inputs.given()) ++progress.parsed_given;
  }
}

std::string end_of(int status) {
  if (WIFEXITED(status)) return "ended with code " + std::to_string(WEXITSTATUS(status));
  const int signal = WTERMSIG(status);
  if (signal == SIGPROF) return "took more CPU time than it may";
  return std::string("ended by ") + ::strsignal(signal);
}

int report(const std::string& target, const Inputs& inputs, const Options& options, const Progress& progress,
           int status) {
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
    std::printf("%s: %llu inputs, %llu parsed\n", target.c_str(),
                static_cast<unsigned long long>(inputs.count()),
                static_cast<unsigned long long>(progress.parsed));
    if (!options.files.empty() || progress.parsed_given == inputs.given()) return 0;
    std::fprintf(stderr, "%s: only %llu of %llu seeds are parsed; correct the seeds\n", target.c_str(),
                 static_cast<unsigned long long>(progress.parsed_given),
                 static_cast<unsigned long long>(inputs.given()));
    return 1;
  }
  const fs::path kept = fs::path(options.keep) / (target + '.' + inputs.name(progress.input));
  write(kept.string(), inputs.text(progress.input));
  std::fprintf(stderr, "%s: %s %s; its input: %s\n", target.c_str(), inputs.name(progress.input).c_str(),
               end_of(status).c_str(), kept.string().c_str());
  return 1;
}

int run(const std::string& target, const Options& options) {
  if (!options.write_seeds.empty()) {
    const std::vector<std::string> seeds = stowage::fuzz::seeds();
    for (std::size_t i = 0; i < seeds.size(); ++i)
      write((fs::path(options.write_seeds) / (target + '.' + std::to_string(i))).string(), seeds[i]);
    return 0;
  }
  const Inputs inputs(options);
  void* page = ::mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) throw std::runtime_error("no shared memory");
  Progress& progress = *new (page) Progress;
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("no child process");
  if (child == 0) {
    run_all(inputs, options, progress);
    std::exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return report(target, inputs, options, progress, status);
}

}  // namespace

int main(int count, char** arguments) {
  try {
    return run(fs::path(arguments[0]).filename().string(), parse({arguments + 1, arguments + count}));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fuzz: %s\n%s", error.what(), usage);
    return 2;
  }
}
