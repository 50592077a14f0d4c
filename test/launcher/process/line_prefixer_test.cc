#include "launcher/process/line_prefixer.h"

#include <catch2/catch.hpp>
#include <regex>
#include <string>
#include <vector>

#include "launcher/process/progress_bars.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {

// What comes out for each chunk, and at the end of the stream.
std::vector<std::string> run(const std::vector<std::string>& chunks, std::size_t max_pending = 1024) {
  LinePrefixer prefixer([] { return std::string("[0]<stdout>:"); }, max_pending);
  std::vector<std::string> out;
  for (const std::string& chunk : chunks) prefixer.feed(as_bytes(chunk), out.emplace_back());
  prefixer.finish(out.emplace_back());
  return out;
}

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("LinePrefixer puts the prefix before every line", "[unit][process]") {
  CHECK(run({"a\nb\n"}) == Texts{"[0]<stdout>:a\n[0]<stdout>:b\n", ""});
  CHECK(run({"\n\n"}) == Texts{"[0]<stdout>:\n[0]<stdout>:\n", ""});
}

TEST_CASE("LinePrefixer forwards a line as soon as it is complete, and not before", "[unit][process]") {
  CHECK(run({"a", "b\nc", "\n"}) == Texts{"", "[0]<stdout>:ab\n", "[0]<stdout>:c\n", ""});
}

TEST_CASE("LinePrefixer ends a line at a carriage return", "[unit][process]") {
  CHECK(run({"10%\r", "20%\rdone\n"}) == Texts{"[0]<stdout>:10%\r", "[0]<stdout>:20%\r[0]<stdout>:done\n", ""});
}

TEST_CASE("LinePrefixer takes carriage return and newline as one end", "[unit][process]") {
  CHECK(run({"a\r\nb\n"}) == Texts{"[0]<stdout>:a\r\n[0]<stdout>:b\n", ""});
  SECTION("also when a chunk ends between them") {
    CHECK(run({"a\r", "\nb\n"}) == Texts{"[0]<stdout>:a\r", "\n[0]<stdout>:b\n", ""});
  }
}

TEST_CASE("LinePrefixer flushes an unterminated tail without adding a newline", "[unit][process]") {
  CHECK(run({"a\nrest"}) == Texts{"[0]<stdout>:a\n", "[0]<stdout>:rest"});
  CHECK(run({}) == Texts{""});
}

TEST_CASE("LinePrefixer passes every byte unchanged, wherever chunks are cut", "[unit][process]") {
  std::string text = "grün – 日本語 \xff\xfe\n";
  text += std::string("nul \0 byte\n", 11);
  const std::string whole = run({text})[0];
  CHECK(whole == "[0]<stdout>:grün – 日本語 \xff\xfe\n[0]<stdout>:" + std::string("nul \0 byte\n", 11));
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    const auto parts = run({text.substr(0, cut), text.substr(cut)});
    CHECK(parts[0] + parts[1] + parts[2] == whole);
  }
}

TEST_CASE("LinePrefixer holds no more of an endless line than its bound", "[unit][process]") {
  const auto out = run({"12345", "678", "9\nx\n"}, 6);
  CHECK(out == Texts{"", "[0]<stdout>:12345678", "9\n[0]<stdout>:x\n", ""});
}

TEST_CASE("LinePrefixer shows a prompt before its line ends, and a line that was interrupted begins anew",
          "[unit][process]") {
  LinePrefixer prefixer([] { return std::string("[0]<stdout>:"); });
  std::string out;
  prefixer.feed(as_bytes("name? "), out);
  CHECK(out.empty());
  CHECK(prefixer.has_pending());
  prefixer.show_pending(out);
  CHECK(out == "[0]<stdout>:name? ");
  CHECK_FALSE(prefixer.has_pending());
  SECTION("its rest follows without a second prefix") {
    prefixer.feed(as_bytes("x\n"), out);
    CHECK(out == "[0]<stdout>:name? x\n");
  }
  SECTION("its rest has the prefix when another's line fell in between") {
    prefixer.interrupt(true);
    prefixer.feed(as_bytes("x\ny\n"), out);
    CHECK(out == "[0]<stdout>:name? [0]<stdout>:x\n[0]<stdout>:y\n");
  }
  SECTION("the end that the other's line has brought does not come twice") {
    prefixer.interrupt(true);
    prefixer.feed(as_bytes("\ny\n"), out);
    CHECK(out == "[0]<stdout>:name? [0]<stdout>:y\n");
  }
  SECTION("an empty line after what was typed is the rank's own") {
    prefixer.interrupt(false);
    prefixer.feed(as_bytes("\n"), out);
    CHECK(out == "[0]<stdout>:name? [0]<stdout>:\n");
  }
  SECTION("a line that was not open is not interrupted") {
    prefixer.feed(as_bytes("x\n"), out);
    prefixer.interrupt(true);
    prefixer.feed(as_bytes("\n"), out);
    CHECK(out == "[0]<stdout>:name? x\n[0]<stdout>:\n");
  }
}

TEST_CASE("rank_prefix names rank and stream, with the time first when asked", "[unit][process]") {
  CHECK(rank_prefix(3, false)() == "[3]<stdout>:");
  CHECK(rank_prefix(12, true)() == "[12]<stderr>:");
  const std::regex ctime_form(
      "[A-Z][a-z]{2} [A-Z][a-z]{2} [ 0-9][0-9] [0-9]{2}:[0-9]{2}:[0-9]{2} [0-9]{4}\\[0\\]<stdout>:");
  CHECK(std::regex_match(rank_prefix(0, false, ctime_stamp)(), ctime_form));
  const std::regex iso_form(R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d \[0\]<stderr>:)");
  CHECK(std::regex_match(rank_prefix(0, true, iso_stamp)(), iso_form));
  CHECK(rank_prefix(0, true, nullptr, colour_of_rank(0))() == "\033[36m[0]<stderr>:\033[0m");
}

TEST_CASE("LinePrefixer keeps the states of a bar to itself but for the last", "[unit][process]") {
  const auto feed = [](const std::vector<std::string>& chunks) {
    LinePrefixer prefixer([] { return std::string("[0]:"); }, 32, LinePrefixer::Bars::kLastState);
    Texts out;
    for (const std::string& chunk : chunks) {
      std::string text;
      prefixer.feed(as_bytes(chunk), text);
      out.push_back(text + "|" + std::string(prefixer.bar()));
    }
    prefixer.finish(out.emplace_back());
    return out;
  };
  CHECK(feed({"10%\r", "20%\r", "30%\n", "x\n"}) == Texts{"|10%", "|20%", "[0]:30%\n|", "[0]:x\n|", ""});
  // As tqdm writes: the carriage return first; the last state without an end.
  CHECK(feed({"\r 0%", "\r", "\r 1", "0%", "\r20%"}) == Texts{"| 0%", "| 0%", "| 1", "| 10%", "|20%", "[0]:20%"});
  // A line that ends with both is a line, wherever chunks are cut.
  CHECK(feed({"a\r\nb\r", "\nc"}) == Texts{"[0]:a\n|b", "[0]:b\n|", "[0]:c"});
  CHECK(feed({"5%\rline\n", "10%\r"}) == Texts{"[0]:line\n|", "|10%", "[0]:10%"});
  // Not a bar: it grows without end.
  CHECK(feed({"5%\r", std::string(40, 'x')}) == Texts{"|5%", "[0]:" + std::string(40, 'x') + "|", ""});
}

TEST_CASE("Bars are cut to the terminal, drawn in order, and taken off the screen", "[unit][process]") {
  ProgressBars bars;
  CHECK(bars.set(2, "[1]:", "50%"));
  CHECK_FALSE(bars.set(2, "[1]:", "50%"));
  CHECK(bars.set(0, "\033[36m[0]:\033[0m", "gr\xc3\xbcn\033[1;31m ist\t lang"));
  CHECK(bars.erase().empty());
  CHECK(bars.draw({.rows = 24, .columns = 13}) == "\033[36m[0]:\033[0mgr\xc3\xbcn ist\n[1]:50%");
  CHECK(bars.erase() == "\r\033[F\033[J");
  CHECK(bars.draw({.rows = 3, .columns = 80}).find("[1]") == std::string::npos);
  CHECK(bars.erase() == "\r\033[J");
  CHECK(bars.set(0, "", ""));
  CHECK(bars.set(2, "", ""));
  CHECK(bars.empty());
  CHECK(bars.draw({}).empty());
  CHECK_FALSE(bars.drawn());
  // Wide letters take two columns, accents none; neither the controls of two bytes nor stray bytes reach the terminal.
  bars.set(0, "[\xe5\xb1\xb1]",
           "\xc2\x9b"
           "31m"
           "e\xcc\x81"
           "\x9b"
           "\xe5\xb1\xb1\xe5\xb1\xb1");
  CHECK(bars.draw({.rows = 24, .columns = 13}) == "[\xe5\xb1\xb1]31me\xcc\x81?\xe5\xb1\xb1");
}
