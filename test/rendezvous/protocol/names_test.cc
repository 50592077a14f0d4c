#include "rendezvous/protocol/names.h"

#include <catch2/catch.hpp>

#include "rendezvous/protocol/agent_socket.h"
#include "rendezvous/protocol/limits.h"

using namespace hvd;
using namespace hvd::rendezvous;

TEST_CASE("Scopes of an epoch are told from all others", "[unit][names]") {
  CHECK(scope_of_epoch(7) == "epoch.7");
  CHECK(scope_of_epoch(7, "gloo") == "epoch.7.gloo");
  CHECK(epoch_of_scope("epoch.7") == 7u);
  CHECK(epoch_of_scope("epoch.7.gloo") == 7u);
  CHECK(epoch_of_scope("epoch.18446744073709551615") == UINT64_MAX);
  CHECK(epoch_of_scope("epoch") == std::nullopt);
  CHECK(epoch_of_scope("epochs.7") == std::nullopt);
  CHECK(is_row_scope("epoch.7"));
  CHECK_FALSE(is_row_scope("epoch.7.gloo"));
  CHECK_FALSE(is_row_scope("world"));
}

TEST_CASE("A second spelling of an epoch is no epoch that ever exists", "[unit][names]") {
  for (const char* scope : {"epoch.07", "epoch.", "epoch.+7", "epoch.7x", "epoch.x", "epoch..7", "epoch.-1",
                            "epoch.18446744073709551616", "epoch.0"}) {
    CHECK(epoch_of_scope(scope) == 0u);
  }
}

TEST_CASE("Names are checked for length and characters", "[unit][names]") {
  CHECK(check_scope("a.B-c_9").is_ok());
  CHECK(check_key("a/b:c.d").is_ok());
  CHECK(check_scope(std::string(kMaxScopeBytes, 'a')).is_ok());
  CHECK_THAT(check_scope(std::string(kMaxScopeBytes + 1, 'a')).message(), Catch::Contains("129 characters"));
  CHECK_FALSE(check_scope("").is_ok());
  CHECK_FALSE(check_scope("a/b").is_ok());
  CHECK_FALSE(check_key("").is_ok());
  CHECK_FALSE(check_key(std::string(kMaxKeyBytes + 1, 'a')).is_ok());
  for (const std::string bad : {"a b", "a?b", "a%b", "a\r\nb", "a\"b", "\xc3\xa9"}) CHECK_FALSE(check_key(bad).is_ok());
  // Nothing of a hostile name reaches a terminal.
  CHECK_THAT(check_key("\x1b[31m").message(), Catch::Contains("?[31m"));
}

TEST_CASE("The name of an agent's socket is exact", "[unit][names]") {
  CHECK(is_agent_socket_name("hvd-agent-0123456789abcdef0123456789abcdef"));
  CHECK_FALSE(is_agent_socket_name("hvd-agent-0123456789ABCDEF0123456789abcdef"));
  CHECK_FALSE(is_agent_socket_name("hvd-agent-0123456789abcdef0123456789abcde"));
  CHECK_FALSE(is_agent_socket_name("hvd-agent_0123456789abcdef0123456789abcdef"));
}
