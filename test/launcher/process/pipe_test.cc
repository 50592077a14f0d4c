#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <optional>
#include <string>
#include <vector>

#include "launcher/process/byte_pipe.h"
#include "launcher/process/console.h"
#include "launcher/process/input_reader.h"
#include "launcher/process/main_loop.h"
#include "launcher/process/own_process.h"
#include "launcher/process/signal_watcher.h"
#include "runtime/loop/timer.h"
#include "test/support/file_size_limit.h"

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
    ignore_io_signals();  // as the product's main does
    deadline.start(Millis(20000));
  }
};

}  // namespace

TEST_CASE("PipeWriter and PipeReader carry 10 MB unchanged", "[process]") {
  Harness h;
  const std::string sent = pattern(10'000'000);
  std::string received;
  auto reader = PipeReader::open(
                    h.loop, std::move(h.pipe.read_end),
                    {.on_data = [&](ByteSpan bytes) { received += as_text(bytes); }, .on_end = [&] { h.loop.stop(); }})
                    .value();
  std::unique_ptr<PipeWriter> writer;
  writer = PipeWriter::open(h.loop, std::move(h.pipe.write_end),
                            {.on_progress =
                                 [&] {
                                   if (writer->queued() == 0) writer->close();
                                 },
                             .on_error = {}})
               .value();
  writer->write(Bytes(sent.begin(), sent.end()));
  CHECK(writer->queued() > 0);
  h.loop.run();
  CHECK(received == sent);
}

TEST_CASE("PipeReader reads one more piece when it is paused, and then nothing", "[process]") {
  Harness h;
  std::string received;
  auto reader = PipeReader::open(h.loop, std::move(h.pipe.read_end),
                                 {.on_data =
                                      [&](ByteSpan bytes) {
                                        received += as_text(bytes);
                                        if (received == "x") CHECK(write_all(h.pipe.write_end.get(), "y", 1).is_ok());
                                      },
                                  .on_end = {}})
                    .value();
  reader->pause();
  REQUIRE(write_all(h.pipe.write_end.get(), "x", 1).is_ok());
  loop::Timer soon(h.loop.get(), [&] {
    CHECK(received == "x");
    reader->resume();
    h.pipe.write_end.reset();
  });
  soon.start(Millis(50));
  h.deadline.stop();
  h.loop.run();
  CHECK(received == "xy");
  CHECK(reader->ended());
}

TEST_CASE("PipeWriter tells once that the reader is gone", "[process]") {
  Harness h;
  int errors = 0;
  h.pipe.read_end.reset();
  auto writer = PipeWriter::open(h.loop, std::move(h.pipe.write_end),
                                 {.on_progress = {},
                                  .on_error =
                                      [&](const Status&) {
                                        ++errors;
                                        h.loop.stop();
                                      }})
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
  Console console(h.loop, h.pipe.write_end.get(),
                  {.on_progress =
                       [&] {
                         if (h.pipe.write_end.valid())
                           CHECK((::fcntl(h.pipe.write_end.get(), F_GETFL) & O_NONBLOCK) == 0);
                         if (received.size() == sent.size()) h.loop.stop();
                       },
                   .on_gone = {},
                   .on_loss = {}});
  console.write(sent);
  CHECK(console.queued() > 0);  // the pipe is full, and we are here
  auto reader = PipeReader::open(h.loop, std::move(h.pipe.read_end),
                                 {.on_data =
                                      [&](ByteSpan bytes) {
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
  Console console(h.loop, h.pipe.write_end.get(),
                  {.on_progress = {}, .on_gone = [&](const Status&) { ++errors; }, .on_loss = {}});
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

TEST_CASE("Console tells once that a file takes no more, and goes on when it does", "[process]") {
  Harness h;
  char name[] = "/tmp/hvd-console-XXXXXX";
  const Fd file(::mkstemp(name));
  ::unlink(name);
  std::vector<std::string> losses;
  Console console(h.loop, file.get(),
                  {.on_progress = {},
                   .on_gone = [&](const Status&) { losses.emplace_back("gone"); },
                   .on_loss = [&](const Status& status) { losses.push_back(status.message()); }});
  {
    const test::FileSizeLimit limit(4);
    console.write("ab\ncd\n");
    console.write("ef\n");
  }
  console.write("gh\n");
  CHECK(losses == std::vector<std::string>{"write: File too large"});
  CHECK(console.lost_bytes() == 2 + 4);  // "d\n", and "ef\n" with the end of the line before it
  char text[32] = {};
  CHECK(::pread(file.get(), text, sizeof(text), 0) == 8);
  CHECK(std::string(text) == "ab\nc\ngh\n");
}

TEST_CASE("InputReader reads as much as it is allowed to, and leaves the flags of what it reads alone", "[process]") {
  Harness h;
  std::string received;
  std::size_t chunks = 0;
  InputReader reader(h.loop, h.pipe.read_end.get(),
                     {.on_data =
                          [&](ByteSpan bytes) {
                            received += as_text(bytes);
                            if (++chunks == 1) h.loop.stop();
                          },
                      .on_end = [&] { h.loop.stop(); }});
  REQUIRE(::write(h.pipe.write_end.get(), "hello", 5) == 5);
  reader.allow(2);
  h.loop.run();
  CHECK(received == "he");
  CHECK((::fcntl(h.pipe.read_end.get(), F_GETFL) & O_NONBLOCK) == 0);
  reader.allow(100);
  h.pipe.write_end.reset();
  h.loop.run();
  CHECK(received == "hello");
}

TEST_CASE("Of PipeReaders that are paused together each has its turn", "[process]") {
  Harness h;
  std::vector<Pipe> pipes;
  std::vector<std::unique_ptr<PipeReader>> readers;
  std::vector<std::size_t> got(3);
  std::size_t turns = 0;
  const auto each = [&](void (PipeReader::*change)()) {
    for (const auto& reader : readers) (reader.get()->*change)();
  };
  for (std::size_t i = 0; i < got.size(); ++i) {
    pipes.push_back(make_pipe().value());
    readers.push_back(PipeReader::open(h.loop, std::move(pipes[i].read_end),
                                       {.on_data =
                                            [&, i](ByteSpan bytes) {
                                              got[i] += bytes.size();
                                              each(&PipeReader::pause);
                                              if (++turns % got.size() == 0) h.loop.stop();
                                            },
                                        .on_end = {}})
                          .value());
  }
  for (int round = 1; round <= 3; ++round) {
    for (const Pipe& pipe : pipes) REQUIRE(::write(pipe.write_end.get(), "some", 4) == 4);
    h.loop.run();
    CHECK(got == std::vector<std::size_t>(3, static_cast<std::size_t>(round) * 4));
    each(&PipeReader::resume);
  }
}

TEST_CASE("InputReader lets others of its loop run while there is always more to read", "[process]") {
  Harness h;
  const Fd endless(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
  constexpr std::size_t kEnough = std::size_t{256} << 20;
  std::size_t received = 0;
  std::optional<InputReader> reader;
  reader.emplace(h.loop, endless.get(),
                 InputReader::Callbacks{.on_data =
                                            [&](ByteSpan bytes) {
                                              received += bytes.size();
                                              if (received < kEnough) reader->allow(bytes.size());
                                            },
                                        .on_end = [] {}});
  loop::Timer other(h.loop.get(), [&] { h.loop.stop(); });
  other.start(Millis(1));
  reader->allow(65536);
  h.loop.run();
  CHECK(received < kEnough);
  CHECK(received > 0);
}
