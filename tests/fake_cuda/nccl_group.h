// The ranks of one NCCL id, which are threads of one process or of several. What they bring to a collective
// goes through memory that all of them map: a file without a name, which the process that made the id keeps
// open, so that nothing is left behind however the processes end.
//
// A collective is a round. A rank puts what it sends into its outbox once all have taken what was there in
// the round before, and takes its own from the others' outboxes once all have put theirs. As NCCL's, such
// work has ended when this rank's part has, and waits for ever for a rank that does not come.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace fake_nccl {

inline constexpr int most_ranks = 8;
inline constexpr std::size_t outbox_bytes = std::size_t{64} << 20;  // pages that are not used take nothing

struct Transfer {
  int peer = 0;
  char* data = nullptr;
  std::size_t bytes = 0;
};
// One rank's sends and receives in a collective. Its kth receive from another rank takes what that rank sends
// to it as its kth.
struct Part {
  std::vector<Transfer> sends, receives;
};

class Group {
 public:
  // A new one. Null where the system has no memory for it.
  static std::shared_ptr<Group> make();
  // That of an id of this process or another one. Null where there is none, or no more.
  static std::shared_ptr<Group> open(const std::string& id);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  const std::string& id() const { return id_; }
  void come() { ++shared_->come; }
  bool complete(int size) const { return shared_->come >= static_cast<std::uint32_t>(size); }

  // Whether the outbox has room for what is sent.
  static bool fits(const Part& part);
  // Makes one collective of `size` ranks, this rank's next. A rank that is aborted meanwhile waits no more.
  void collective(int rank, int size, const Part& part);
  void abort(int rank);

 private:
  using Word = std::atomic<std::uint32_t>;
  struct Shared {
    Word come;
    Word changes;                             // of what ranks wait for
    std::array<Word, most_ranks> put, taken;  // rounds, by rank
    std::array<std::array<char, outbox_bytes>, most_ranks> outboxes;
  };

  Group(int file, std::string id, Shared* shared) : file_(file), id_(std::move(id)), shared_(shared) {}
  static std::shared_ptr<Group> map(int file, std::string id);

  template <class Done>
  bool await(int rank, Done done);
  bool all_reached(const std::array<Word, most_ranks>& rounds, int size, std::uint32_t round) const;
  void tell();
  void put(int rank, const Part& part);
  void take(int rank, const Part& part) const;

  const int file_;
  const std::string id_;
  Shared* const shared_;
  std::array<std::atomic<bool>, most_ranks> aborted_{};  // ranks of this process
};

}  // namespace fake_nccl
