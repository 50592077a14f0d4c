#include "launcher/job/output_router.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

namespace hvd::launcher {

OutputRouter::Screen OutputRouter::make_screen(MainLoop& loop, int fd, bool prompts, const Callbacks& callbacks) {
  const std::string name = fd == STDOUT_FILENO ? "stdout" : "stderr";
  const auto on_loss = [this, name](const Status& status) {
    message("what the job prints to " + name + " is lost for now (" + status.message() + "); the job goes on");
  };
  return {.console = Console(
              loop, fd, {.on_progress = callbacks.on_progress, .on_gone = callbacks.on_broken, .on_loss = on_loss}),
          .shows_prompts = prompts || ::isatty(fd) == 1};
}

OutputRouter::OutputRouter(MainLoop& loop, const Options& options, const Callbacks& callbacks)
    : options_(options),
      one_screen_(is_same_file(STDOUT_FILENO, STDERR_FILENO)),
      stdout_(make_screen(loop, STDOUT_FILENO, options.prompts, callbacks)),
      stderr_(make_screen(loop, STDERR_FILENO, options.prompts, callbacks)),
      prompt_timer_(loop.get(), [this] { show_prompts(); }) {
  for (const auto& [slot, rank] : options.ranks) slots_.emplace(slot, streams_of_rank(rank));
}

OutputRouter::SlotStreams OutputRouter::streams_of_rank(int rank) const {
  return {.rank = rank,
          .streams = {Stream(rank_prefix(rank, false, options_.with_time)),
                      Stream(rank_prefix(rank, true, options_.with_time))},
          .stderr_tail = {}};
}

void OutputRouter::set_rank(int slot, int rank) {
  const auto found = slots_.find(slot);
  if (found != slots_.end() && found->second.rank == rank) return;
  if (found != slots_.end()) {
    for (const bool is_stderr : {false, true}) {
      output_end(slot, is_stderr);
      Screen& screen = screen_of(is_stderr);
      if (screen.open == stream_of(slot, is_stderr)) screen.open = nullptr;
    }
    slots_.erase(found);
  }
  slots_.emplace(slot, streams_of_rank(rank));
}

Status OutputRouter::open_files(const std::string& directory) {
  for (auto& [number, slot] : slots_) {
    HVD_ASSIGN_OR_RETURN(auto files, open_output_files(directory, slot.rank, static_cast<int>(slots_.size())));
    for (const bool is_stderr : {false, true}) {
      Stream& stream = slot.streams[is_stderr ? 1 : 0];
      stream.file = std::move(files[is_stderr ? 1 : 0]);
      stream.file_prefixer = std::make_unique<LinePrefixer>(rank_prefix(slot.rank, is_stderr, options_.with_time));
    }
  }
  return Status::ok();
}

OutputRouter::Stream* OutputRouter::stream_of(int slot, bool is_stderr) {
  const auto found = slots_.find(slot);
  return found == slots_.end() ? nullptr : &found->second.streams[is_stderr ? 1 : 0];
}

void OutputRouter::output(int slot, bool is_stderr, ByteSpan bytes) {
  Stream* stream = stream_of(slot, is_stderr);
  if (stream == nullptr || bytes.empty()) return;
  if (is_stderr) slots_.at(slot).stderr_tail.add(bytes);
  std::string text;
  if (stream->file_prefixer) {
    stream->file_prefixer->feed(bytes, text);
    write_file(*stream, std::exchange(text, {}));
  }
  stream->prefixer.feed(bytes, text);
  show(*stream, is_stderr, text);
  if (is_stderr) slots_.at(slot).last_line = lines_;
  if (!stream->prefixer.has_pending()) {
    stream->pending_since.reset();
  } else if (screen_of(is_stderr).shows_prompts && !stream->pending_since) {
    stream->pending_since = SteadyClock::now();
    if (!prompt_timer_.active()) prompt_timer_.start(kPromptAge);
  }
}

void OutputRouter::output_end(int slot, bool is_stderr) {
  Stream* stream = stream_of(slot, is_stderr);
  if (stream == nullptr) return;
  std::string text;
  if (stream->file_prefixer) {
    stream->file_prefixer->finish(text);
    write_file(*stream, std::exchange(text, {}));
  }
  stream->prefixer.finish(text);
  show(*stream, is_stderr, text);
}

void OutputRouter::end_all() {
  for (const auto& [number, slot] : slots_) {
    output_end(number, false);
    output_end(number, true);
  }
}

void OutputRouter::show(Stream& stream, bool is_stderr, const std::string& text) {
  if (text.empty() || (discards_ && over_high_water())) return;
  Screen& screen = screen_of(is_stderr);
  if (screen.open != nullptr && screen.open != &stream) {
    screen.open->prefixer.interrupt(true);
    screen.console.write("\n");
  }
  screen.console.write(text);
  lines_ += static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
  screen.at_line_start = text.back() == '\n';
  // A progress bar is content to be overwritten.
  screen.open = screen.at_line_start || text.back() == '\r' ? nullptr : &stream;
}

void OutputRouter::show_prompts() {
  const TimePoint now = SteadyClock::now();
  bool more = false;
  for (auto& [number, slot] : slots_) {
    for (const bool is_stderr : {false, true}) {
      Stream& stream = slot.streams[is_stderr ? 1 : 0];
      if (!stream.pending_since) continue;
      if (now - *stream.pending_since < kPromptAge) {
        more = true;
        continue;
      }
      stream.pending_since.reset();
      std::string text;
      stream.prefixer.show_pending(text);
      show(stream, is_stderr, text);
    }
  }
  if (more) prompt_timer_.start(kPromptAge);
}

void OutputRouter::line_was_typed() {
  for (Screen* screen : {&stdout_, &stderr_}) {
    if (screen->open != nullptr) screen->open->prefixer.interrupt(false);
    screen->open = nullptr;
    screen->at_line_start = true;
  }
}

void OutputRouter::write_file(Stream& stream, const std::string& text) {
  if (text.empty() || !stream.file.fd.valid()) return;
  const Status status = write_all(stream.file.fd.get(), text.data(), text.size());
  if (status.is_ok()) return;
  stream.file.fd.reset();  // say it once; the job and the console go on
  message("cannot write to " + stream.file.name + " any more: " + status.message());
}

void OutputRouter::message(std::string_view text) {
  Screen& screen = screen_of(true);
  if (screen.open != nullptr) screen.open->prefixer.interrupt(true);
  screen.open = nullptr;
  const char* start = std::exchange(screen.at_line_start, true) ? "horovodrun: " : "\nhorovodrun: ";
  screen.console.write(start + std::string(text) + "\n");
}

std::size_t OutputRouter::lines_after_stderr(int slot) const {
  const auto found = slots_.find(slot);
  return found == slots_.end() ? 0 : lines_ - found->second.last_line;
}

std::vector<std::string> OutputRouter::last_stderr_lines(int slot, std::size_t max_lines) const {
  const auto found = slots_.find(slot);
  return found == slots_.end() ? std::vector<std::string>() : found->second.stderr_tail.last_lines(max_lines);
}

}  // namespace hvd::launcher
