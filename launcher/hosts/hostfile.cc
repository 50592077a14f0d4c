#include "launcher/hosts/host_grammar.h"
#include "launcher/hosts/host_list.h"
#include "runtime/base/split.h"
#include "runtime/config/parse_value.h"

namespace hvd::launcher {

namespace {

constexpr std::string_view kBlanks = " \t\r\v\f";

// The next word of the line, with the blanks around a '=' taken out of it (`slots = 2` is one word).
std::string take_word(std::string_view& line) {
  std::string word;
  line = config::trim(line);
  while (!line.empty()) {
    const std::size_t end = std::min(line.find_first_of(kBlanks), line.size());
    word += line.substr(0, end);
    line = config::trim(line.substr(end));
    if (!word.ends_with('=') && !line.starts_with('=')) break;
  }
  return word;
}

Status set_once(int& target, std::string_view key, const Result<int>& value) {
  if (!value.is_ok()) return value.status();
  if (target != 0) return Status::invalid_argument(std::string(key) + " is given twice");
  target = value.value();
  return Status::ok();
}

Status parse_key(std::string_view word, HostSpec& host) {
  const std::size_t equals = word.find('=');
  const std::string_view key = word.substr(0, equals);
  const std::string_view value = equals == std::string_view::npos ? "" : word.substr(equals + 1);
  if (equals != std::string_view::npos && key == "slots") return set_once(host.slots, key, parse_slots(value));
  if (equals != std::string_view::npos && key == "port") return set_once(host.port, key, parse_port(value));
  // Open MPI's limit for more processes than slots, which are never started here.
  if (key == "max_slots" || key == "max-slots") return parse_slots(value).status();
  return Status::invalid_argument("unexpected " + config::quoted(word) + "; a line is `name slots=N [port=P]`");
}

Result<HostSpec> parse_line(std::string_view line) {
  const std::string first = take_word(line);
  if (line.empty()) return parse_entry(first);  // name or name:slots, as in -H
  HVD_ASSIGN_OR_RETURN(const PlaceText place, parse_place(first));
  HostSpec host = place.host;
  if (!place.second_number.empty()) {
    return Status::invalid_argument("the slots are given twice: by " + config::quoted(first) + " and by what follows");
  }
  if (!place.first_number.empty()) {
    HVD_ASSIGN_OR_RETURN(host.port, parse_port(place.first_number));
  }
  while (!line.empty()) {
    const std::string word = take_word(line);
    HVD_RETURN_IF_ERROR(parse_key(word, host));
  }
  if (host.slots == 0) host.slots = 1;
  return host;
}

}  // namespace

Result<std::vector<HostSpec>> parse_hostfile(std::string_view text, std::string_view file) {
  if (text.size() > kMaxHostTextBytes) return Status::invalid_argument(std::string(file) + ": longer than 4 MiB");
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);  // the byte order mark of Windows editors
  HostTable table;
  std::size_t number = 0;
  for (const std::string_view whole : split(text, '\n')) {
    const std::string_view line = config::trim(whole.substr(0, whole.find('#')));
    ++number;
    if (line.empty()) continue;
    const std::string where = std::string(file) + ":" + std::to_string(number);
    const Result<HostSpec> host = parse_line(line);
    const Status added = host.is_ok() ? table.add(host.value()) : host.status();
    if (!added.is_ok()) return added.annotate(where);
  }
  if (table.hosts().empty()) return Status::invalid_argument(std::string(file) + ": no host in it");
  return table.hosts();
}

Result<std::string> read_host_text(const std::string& path, InputKind kind) {
  return read_input(path, "hostfile " + config::quoted(path), kMaxHostTextBytes, kind);
}

Result<std::vector<HostSpec>> read_hostfile(const std::string& path) {
  HVD_ASSIGN_OR_RETURN(const std::string text, read_host_text(path));
  return parse_hostfile(text, path);
}

}  // namespace hvd::launcher
