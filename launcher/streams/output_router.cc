#include "launcher/streams/output_router.h"

#include <unistd.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "runtime/base/failpoint.h"

namespace hvd::launcher {

Console::Callbacks OutputRouter::screen_callbacks(const char* name, const Callbacks& callbacks) {
  const auto on_loss = [this, name](const Status& status) {
    message("what the job prints to " + std::string(name) + " is lost for now (" + status.message() +
            "); the job goes on");
  };
  return {.on_progress = callbacks.on_progress, .on_gone = callbacks.on_broken, .on_loss = on_loss};
}

OutputRouter::OutputRouter(MainLoop& loop, const Options& options, const Callbacks& callbacks)
    : options_(options),
      one_screen_(is_same_file(STDOUT_FILENO, STDERR_FILENO)),
      stdout_(loop, STDOUT_FILENO, screen_callbacks("stdout", callbacks)),
      stderr_(loop, STDERR_FILENO, screen_callbacks("stderr", callbacks)),
      prompt_timer_(loop.get(), [this] { show_prompts(); }) {
  for (const auto& [slot, name] : options.ranks) slots_.emplace(slot, streams_of_rank(name));
}

TimeStamp OutputRouter::stamp() const {
  switch (options_.look.stamp) {
    case OutputConfig::Stamp::kNone: break;
    case OutputConfig::Stamp::kCtime: return ctime_stamp;
    case OutputConfig::Stamp::kIso: return iso_stamp;
    case OutputConfig::Stamp::kRelative:
      return [this] {
        const auto millis = std::chrono::duration_cast<Millis>(SteadyClock::now() - start_).count();
        return std::to_string(millis / 1000) + "." + std::to_string(1000 + millis % 1000).substr(1) + " ";
      };
  }
  return nullptr;
}

OutputRouter::Stream OutputRouter::make_stream(const RankName& name, bool is_stderr) {
  const OutputConfig& look = options_.look;
  const bool is_terminal = screen_of(is_stderr).is_terminal();
  const bool coloured =
      look.colour == OutputConfig::Colour::kAlways || (look.colour == OutputConfig::Colour::kAuto && is_terminal);
  if (is_raw(name.rank)) {
    const auto none = [] { return std::string(); };
    return {.prefix = none, .prefixer = LinePrefixer(none)};
  }
  LinePrefixer::Prefix prefix = [stamp = stamp()] { return stamp ? stamp() : std::string(); };
  if (look.with_prefix) prefix = prefix_of(look, name, is_stderr, stamp(), coloured ? colour_of_rank(name.rank) : "");
  const auto bars = is_terminal ? LinePrefixer::Bars::kLastState : file_bars();
  return {.prefix = prefix, .prefixer = LinePrefixer(prefix, LinePrefixer::kMaxPending, bars)};
}

OutputRouter::SlotStreams OutputRouter::streams_of_rank(const RankName& name) {
  const int rank = name.rank;
  const auto& shown = options_.look.shown_ranks;
  const bool is_shown = shown.empty() || is_raw(rank) || std::ranges::any_of(shown, [rank](const auto& range) {
                          return range.first <= rank && rank <= range.second;
                        });
  return {.name = name,
          .is_shown = is_shown,
          .is_raw = is_raw(rank),
          .streams = {make_stream(name, false), make_stream(name, true)},
          .stderr_tail = {}};
}

void OutputRouter::set_rank(int slot, const RankName& name) {
  const auto found = slots_.find(slot);
  if (found != slots_.end() && found->second.name == name) return;
  if (found != slots_.end()) {
    for (const bool is_stderr : {false, true}) {
      output_end(slot, is_stderr);
      Screen& screen = screen_of(is_stderr);
      if (screen.open == &stream_of(slot, is_stderr)->prefixer) screen.open = nullptr;
    }
    slots_.erase(found);
  }
  SlotStreams& record = slots_.emplace(slot, streams_of_rank(name)).first->second;
  const Status opened = files_ ? open_files_of(record) : Status::ok();
  if (!opened.is_ok()) message(opened.message());
}

Status OutputRouter::open_files(const std::string& directory, int num_proc) {
  files_.emplace(directory, num_proc);
  for (auto& [number, slot] : slots_) HVD_RETURN_IF_ERROR(open_files_of(slot));
  return Status::ok();
}

Status OutputRouter::open_files_of(SlotStreams& slot) {
  const int rank = slot.name.rank;
  auto found = files_of_ranks_.find(rank);
  if (found == files_of_ranks_.end()) {
    HVD_ASSIGN_OR_RETURN(auto files, open_output_files(files_->first, rank, files_->second));
    found = files_of_ranks_.emplace(rank, std::move(files)).first;
  }
  for (const bool is_stderr : {false, true}) {
    Stream& stream = slot.streams[is_stderr ? 1 : 0];
    stream.file = &found->second[is_stderr ? 1 : 0];
    stream.file_prefixer = std::make_unique<LinePrefixer>(prefix_of(options_.look, slot.name, is_stderr, stamp()),
                                                          LinePrefixer::kMaxPending, file_bars());
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
  SlotStreams& record = slots_.at(slot);
  if (is_stderr) record.stderr_tail.add(bytes);
  std::string text;
  if (stream->file_prefixer) {
    stream->file_prefixer->feed(bytes, text);
    write_file(*stream, std::exchange(text, {}));
  }
  if (!record.is_shown) return;
  stream->prefixer.feed(bytes, text);
  if (record.is_raw) stream->prefixer.show_pending(text);
  show_bar(record, is_stderr);
  show(*stream, is_stderr, text);
  if (is_stderr) record.last_line = lines_;
  if (!stream->prefixer.has_pending()) {
    stream->pending_since.reset();
  } else if (shows_prompts(is_stderr) && !stream->pending_since) {
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
  const bool was_bar = !stream->prefixer.bar().empty();
  stream->prefixer.finish(text);
  if (was_bar && screen_of(is_stderr).is_terminal()) text += '\n';
  show_bar(slots_.at(slot), is_stderr);
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
  LinePrefixer* const own = &stream.prefixer;
  const bool falls_into_another = screen.open != nullptr && screen.open != own;
  if (falls_into_another) screen.open->interrupt(true);
  screen.write(falls_into_another ? "\n" + text : text);
  lines_ += static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
  // A progress bar is content to be overwritten.
  screen.open = screen.at_line_start() || text.back() == '\r' ? nullptr : own;
}

void OutputRouter::show_bar(const SlotStreams& slot, bool is_stderr) {
  const Stream& stream = slot.streams[is_stderr ? 1 : 0];
  const std::string_view bar = stream.prefixer.bar();
  const int key = 2 * slot.name.rank + (is_stderr ? 1 : 0);
  screen_of(is_stderr).set_bar(key, bar.empty() ? "" : stream.prefix(), bar);
}

void OutputRouter::status(std::string_view text) { screen_of(true).set_bar(-1, "horovodrun: ", text); }

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
    if (screen->open != nullptr) screen->open->interrupt(false);
    screen->open = nullptr;
    screen->line_was_typed();
  }
}

void OutputRouter::write_file(Stream& stream, const std::string& text) {
  if (text.empty()) return;
  OutputFile& file = *stream.file;
  const Status status = [&]() -> Status {
    HVD_FAILPOINT_RETURN("files.write");
    return file.add(text);
  }();
  if (status.is_ok() || std::exchange(file.is_said_to_fail, true)) return;
  message("what goes to " + file.name + " is lost for now (" + status.message() + "); the job goes on");
}

std::uint64_t OutputRouter::lost_bytes() const {
  std::uint64_t lost = stdout_.console().lost_bytes() + stderr_.console().lost_bytes();
  for (const auto& [rank, files] : files_of_ranks_) {
    for (const OutputFile& file : files) lost += file.lost_bytes;
  }
  return lost;
}

void OutputRouter::message(std::string_view text) {
  Screen& screen = screen_of(true);
  if (screen.open != nullptr) screen.open->interrupt(true);
  screen.open = nullptr;
  screen.write((screen.at_line_start() ? "horovodrun: " : "\nhorovodrun: ") + std::string(text) + "\n");
}

std::size_t OutputRouter::lines_after_stderr(int slot) const {
  const auto found = slots_.find(slot);
  if (found == slots_.end()) return 0;
  return found->second.is_shown ? lines_ - found->second.last_line : std::numeric_limits<std::size_t>::max();
}

std::vector<std::string> OutputRouter::last_stderr_lines(int slot, std::size_t max_lines) const {
  const auto found = slots_.find(slot);
  return found == slots_.end() ? std::vector<std::string>() : found->second.stderr_tail.last_lines(max_lines);
}

}  // namespace hvd::launcher
