#include "src/communicator/tcp_socket.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <string>
#include <vector>

#include "tests/support/reserved_port.h"

namespace stowage::communication {
namespace {

constexpr std::chrono::seconds ample{60};

sockaddr_in at(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
  return address;
}

TEST(TcpSocket, WhatIsSentArrivesWhole) {
  const Descriptor listening = listen_at(0);
  const Descriptor here = connect_to(at(port_of(listening)), in_time(ample));
  const Descriptor there(::accept(listening.number(), nullptr, nullptr));
  const std::string sent(20'000, 'x');
  ASSERT_TRUE(send_whole(here.number(), sent.data(), sent.size()));
  std::string received(sent.size(), ' ');
  ASSERT_TRUE(receive_whole(there.number(), received.data(), received.size(), in_time(ample)));
  EXPECT_EQ(received, sent);
  EXPECT_FALSE(receive_whole(there.number(), received.data(), 1, in_time(std::chrono::milliseconds(1))));
  EXPECT_EQ(errno, ETIMEDOUT);
  EXPECT_FALSE(is_closed(there.number()));
  { const Descriptor gone = connect_to(at(port_of(listening)), in_time(ample)); }
  const Descriptor closed(::accept(listening.number(), nullptr, nullptr));
  EXPECT_TRUE(readable_by(closed.number(), in_time(ample)));
  EXPECT_TRUE(is_closed(closed.number()));
  EXPECT_FALSE(receive_whole(closed.number(), received.data(), 1, in_time(ample)));
}

TEST(TcpSocket, NobodyListensAtAReservedPort) {
  const ReservedPort port;
  EXPECT_LT(connect_to(at(port.number()), in_time(ample)).number(), 0);
  EXPECT_EQ(errno, ECONNREFUSED);
  const Descriptor listening = listen_at(port.number());
  EXPECT_EQ(port_of(listening), port.number());
  EXPECT_LT(listen_at(port.number()).number(), 0);
  EXPECT_EQ(errno, EADDRINUSE);
}

// Where rank 0 has listened before, and the connection is about to be forgotten.
TEST(TcpSocket, APortServesAgain) {
  const ReservedPort port;
  {
    const Descriptor listening = listen_at(port.number());
    const Descriptor here = connect_to(at(port.number()), in_time(ample));
    { const Descriptor first_to_close(::accept(listening.number(), nullptr, nullptr)); }
    EXPECT_TRUE(readable_by(here.number(), in_time(ample)));
  }
  EXPECT_GE(listen_at(port.number()).number(), 0);
}

TEST(Reception, ReadsGreetingsAsTheyCome) {
  Descriptor listening = listen_at(0);
  const sockaddr_in address = at(port_of(listening));
  Reception reception(std::move(listening), 4);
  const Descriptor silent = connect_to(address, in_time(ample)), slow = connect_to(address, in_time(ample)),
                   quick = connect_to(address, in_time(ample));
  send_whole(slow.number(), "sl", 2);
  send_whole(quick.number(), "quick", 5);
  const auto first = reception.next(in_time(ample));
  ASSERT_TRUE(first);
  EXPECT_EQ(std::string(first->greeting.begin(), first->greeting.end()), "quic");
  send_whole(slow.number(), "ow", 2);
  const auto second = reception.next(in_time(ample));
  ASSERT_TRUE(second);
  EXPECT_EQ(std::string(second->greeting.begin(), second->greeting.end()), "slow");
  char rest = 0;
  EXPECT_TRUE(receive_whole(first->connection.number(), &rest, 1, in_time(ample)));
  EXPECT_EQ(rest, 'k');
  EXPECT_FALSE(reception.next(in_time(std::chrono::milliseconds(1))));
}

// For as long as it lives, this process opens so many files more beside those up to `last`.
class FewFiles {
 public:
  FewFiles(const Descriptor& last, int more) {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit few = before_;
    few.rlim_cur = static_cast<rlim_t>(last.number() + 1 + more);
    setrlimit(RLIMIT_NOFILE, &few);
  }
  ~FewFiles() { setrlimit(RLIMIT_NOFILE, &before_); }
  FewFiles(const FewFiles&) = delete;
  FewFiles& operator=(const FewFiles&) = delete;

 private:
  rlimit before_{};
};

TEST(Reception, EndsAtItsDeadlineWhereNobodyCanBeAccepted) {
  Descriptor listening = listen_at(0);
  const sockaddr_in address = at(port_of(listening));
  Reception reception(std::move(listening), 4);
  const Descriptor guest = connect_to(address, in_time(ample));
  const FewFiles none(guest, 0);
  EXPECT_FALSE(reception.next(in_time(std::chrono::milliseconds(20))));
}

TEST(Reception, SendsAwayTheFirstWhereNoMoreFilesCanBeOpen) {
  Descriptor listening = listen_at(0);
  const sockaddr_in address = at(port_of(listening));
  Reception reception(std::move(listening), 4);
  std::vector<Descriptor> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(connect_to(address, in_time(ample)));
  const Descriptor last = connect_to(address, in_time(ample));
  ASSERT_TRUE(send_whole(last.number(), "last", 4));
  const FewFiles three(last, 3);
  const auto guest = reception.next(in_time(ample));
  ASSERT_TRUE(guest);
  EXPECT_EQ(std::string(guest->greeting.begin(), guest->greeting.end()), "last");
}

TEST(Reception, SendsAwayTheFirstOfManyThatAreSilent) {
  Descriptor listening = listen_at(0);
  const sockaddr_in address = at(port_of(listening));
  Reception reception(std::move(listening), 4);
  std::vector<Descriptor> silent;
  for (int i = 0; i < 300; ++i) silent.push_back(connect_to(address, in_time(ample)));
  send_whole(silent.back().number(), "last", 4);
  EXPECT_TRUE(reception.next(in_time(ample)));
  EXPECT_TRUE(is_closed(silent.front().number()));
  EXPECT_FALSE(is_closed(silent[100].number()));
}

}  // namespace
}  // namespace stowage::communication
