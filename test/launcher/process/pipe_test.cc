#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>

#include "launcher/process/byte_pipe.h"
#include "launcher/process/console.h"
#include "launcher/process/main_loop.h"
#include "launcher/process/signal_watcher.h"
#include "runtime/loop/timer.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {

std::string pattern(std::size_t size) {
  std::string text(size, '\0');
  for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>('a' + (i * 31 + i / 977) % 26);
  return text;
}

struct Harness {
  MainLoop loop;
  Pipe pipe = make_pipe().value();
  loop::Timer deadline{loop.get(), [this] { loop.stop(); }};
  Harness() {
    ignore_sigpipe();  // as the product's main does
    deadline.start(Millis(20000));
  }
};

}  // namespace

TEST_CASE("PipeWriter and PipeReader carry 10 MB unchanged", "[process]") {
  Harness h;
  const std::string sent = pattern(10'000'000);
  std::string received;
  auto reader = PipeReader::open(h.loop, std::move(h.pipe.read_end),
                                 {.on_data = [&](ByteSpan bytes) { received += as_text(bytes); },
                                  .on_end = [&] { h.loop.stop(); }})
                    .value();
  std::unique_ptr<PipeWriter> writer;
  writer = PipeWriter::open(h.loop, std::move(h.pipe.write_end), {.on_progress = [&] {
                              if (writer->queued() == 0) writer->close();
                            }, .on_error = {}}).value();
  writer->write(Bytes(sent.begin(), sent.end()));
  CHECK(writer->queued() > 0);
  h.loop.run();
  CHECK(received == sent);
}

TEST_CASE("PipeReader reads nothing while it is paused", "[process]") {
  Harness h;
  std::string received;
  auto reader = PipeReader::open(h.loop, std::move(h.pipe.read_end),
                                 {.on_data = [&](ByteSpan bytes) { received += as_text(bytes); }, .on_end = {}})
                    .value();
  reader->pause();
  REQUIRE(write_all(h.pipe.write_end.get(), "x", 1).is_ok());
  loop::Timer soon(h.loop.get(), [&] {
    CHECK(received.empty());
    reader->resume();
    h.pipe.write_end.reset();
  });
  soon.start(Millis(50));
  h.deadline.stop();
  h.loop.run();
  CHECK(received == "x");
  CHECK(reader->ended());
}

TEST_CASE("PipeWriter tells once that the reader is gone", "[process]") {
  Harness h;
  int errors = 0;
  h.pipe.read_end.reset();
  auto writer = PipeWriter::open(h.loop, std::move(h.pipe.write_end),
                                 {.on_progress = {}, .on_error = [&](const Status&) { ++errors; h.loop.stop(); }})
                    .value();
  writer->write(Bytes(10));
  writer->write(Bytes(10));
  h.loop.run();
  CHECK(errors == 1);
  CHECK(writer->broken());
}

TEST_CASE("Console writes 10 MB to a slow pipe without blocking and without making it non-blocking", "[process]") {
  Harness h;
  const std::string sent = pattern(10'000'000);
  std::string received;
  Console console(h.loop, h.pipe.write_end.get(), {.on_progress = [&] {
                    if (h.pipe.write_end.valid()) CHECK((::fcntl(h.pipe.write_end.get(), F_GETFL) & O_NONBLOCK) == 0);
                    if (received.size() == sent.size()) h.loop.stop();
                  }, .on_error = {}});
  console.write(sent);
  CHECK(console.queued() > 0);  // the pipe is full, and we are here
  auto reader = PipeReader::open(h.loop, std::move(h.pipe.read_end),
                                 {.on_data = [&](ByteSpan bytes) {
                                    received += as_text(bytes);
                                    if (received.size() == sent.size()) h.loop.stop();
                                  },
                                  .on_end = {}})
                    .value();
  h.loop.run();
  CHECK(received == sent);
  CHECK(console.queued() == 0);
}

TEST_CASE("Console tells once that nobody reads", "[process]") {
  Harness h;
  int errors = 0;
  Console console(h.loop, h.pipe.write_end.get(), {.on_progress = {}, .on_error = [&](const Status&) { ++errors; }});
  h.pipe.read_end.reset();
  console.write("a");
  console.write("b");
  CHECK(errors == 1);
  CHECK(console.queued() == 0);
}

TEST_CASE("Console writes to a file at once", "[process]") {
  Harness h;
  char name[] = "/tmp/hvd-console-XXXXXX";
  const Fd file(::mkstemp(name));
  ::unlink(name);
  Console console(h.loop, file.get(), {});
  console.write(pattern(300'000));
  CHECK(console.queued() == 0);
  CHECK(::lseek(file.get(), 0, SEEK_END) == 300'000);
}
