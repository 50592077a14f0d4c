#include "launcher/elastic/host_book.h"

#include <catch2/catch.hpp>

#include "launcher/hosts/host_list.h"

using namespace hvd;
using namespace hvd::launcher;
using std::chrono::seconds;

namespace {

std::vector<HostSpec> hosts(const char* text) {
  return *text == 0 ? std::vector<HostSpec>() : parse_host_list(text).value();
}

TimePoint at(int second) { return TimePoint() + seconds(second); }

}  // namespace

TEST_CASE("A host book says what has changed, and who stays keeps its place", "[unit][elastic]") {
  HostBook book(std::nullopt, [] { return 0.0; });
  CHECK(book.update(hosts("a:2,b:1")) == kHostAdded);
  CHECK(book.update(hosts("b:1,a:2")) == kNoHostChange);
  CHECK(book.update(hosts("c:1,a:2,b:1")) == kHostAdded);
  CHECK(host_list_text(book.usable()) == "a:2,b:1,c:1");
  CHECK(book.update(hosts("a:1,b:3,c:1")) == (kHostAdded | kHostRemoved));
  CHECK(book.update(hosts("b:3,c:1")) == kHostRemoved);
  CHECK(book.update(hosts("a:1,b:3,c:1")) == kHostAdded);
  CHECK(host_list_text(book.usable()) == "b:3,c:1,a:1");
  CHECK(book.update({}) == kHostRemoved);
  CHECK(book.usable().empty());
}

TEST_CASE("Without a range a failed host stays aside, also when it comes again", "[unit][elastic]") {
  HostBook book(std::nullopt, [] { return 0.0; });
  book.update(hosts("a:2,b:1"));
  book.set_aside("a", at(0));
  CHECK(book.how_long("a", at(0)) == "for good");
  CHECK_FALSE(book.next_return().has_value());
  CHECK(book.end_cooldowns(at(100000)) == kNoHostChange);
  CHECK(book.update(hosts("b:1")) == kNoHostChange);
  CHECK(book.update(hosts("a:2,b:1")) == kNoHostChange);
  CHECK(host_list_text(book.usable()) == "b:1");
}

TEST_CASE("A cool-down doubles, within its range, and ends with the host at the end", "[unit][elastic]") {
  double random = 0.5;
  HostBook book(CooldownRange(seconds(10), seconds(60)), [&random] { return random; });
  book.update(hosts("a:2,b:1"));
  book.set_aside("a", at(0));
  CHECK(book.next_return() == at(25));  // 10 x 2 + 0.5 x 10
  book.set_aside("a", at(20));          // no longer for that
  CHECK(book.next_return() == at(25));
  CHECK(book.end_cooldowns(at(24)) == kNoHostChange);
  CHECK(book.end_cooldowns(at(25)) == kHostAdded);
  CHECK(host_list_text(book.usable()) == "b:1,a:2");
  random = 0;
  book.set_aside("a", at(30));
  CHECK(book.next_return() == at(70));
  book.end_cooldowns(at(70));
  book.set_aside("a", at(100));
  CHECK(book.next_return() == at(160));  // 80 s are more than the range has
  CHECK(book.how_long("a", at(100)) == "for 60 s");
  CHECK(book.update(hosts("b:1")) == kNoHostChange);
  CHECK(book.end_cooldowns(at(160)) == kNoHostChange);  // nobody has it now
  CHECK(book.update(hosts("b:1,a:2")) == kHostAdded);
}

TEST_CASE("A host that was told to go comes back with the list, unless it failed before", "[unit][elastic]") {
  HostBook book(std::nullopt, [] { return 0.0; });
  book.update(hosts("a:1,b:1,c:1"));
  book.set_aside_until_relisted("a");
  book.set_aside("a", at(0));  // it is gone already: that is no failure of its own
  book.set_aside("b", at(0));
  book.set_aside_until_relisted("b");
  CHECK_FALSE(book.is_there("a"));
  CHECK(book.how_long("a", at(0)) == "until it is listed anew");
  CHECK(book.update(hosts("c:1")) == kNoHostChange);
  CHECK(book.update(hosts("c:1,a:1,b:1")) == kHostAdded);
  CHECK(host_list_text(book.usable()) == "c:1,a:1");
  CHECK(book.is_there("b"));  // and aside
}

TEST_CASE("Parts of one machine follow the first of them", "[unit][elastic]") {
  HostBook book(std::nullopt, [] { return 0.0; });
  const auto part = [](const char* name, const char* node) {
    return HostSpec{.name = name, .user = "", .port = 0, .slots = 1, .node = node};
  };
  book.update({part("task-0", "a"), part("task-1", "b")});
  CHECK(book.update({part("task-0", "a"), part("task-1", "b"), part("task-2", "a")}) == kHostAdded);
  CHECK(host_list_text(book.usable()) == "task-0:1,task-2:1,task-1:1");
}
