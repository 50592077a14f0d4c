#include "launcher/cli/flag_values.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>

#include "runtime/base/input_file.h"
#include "runtime/config/nearest.h"
#include "runtime/config/parse_value.h"

namespace hvd::launcher {

namespace {

// Reads one document. The sections and keys are those of flag_table.cc, plus `controller`.
class ConfigReader {
 public:
  ConfigReader(std::string_view file, FlagValues& values, std::vector<std::string>& notices)
      : file_(file), given_(values), values_(values), notices_(notices) {}

  Status read(const YAML::Node& root) {
    if (!root.IsDefined() || root.IsNull()) return Status::ok();
    if (!root.IsMap()) return Status::invalid_argument(where(root) + "expected sections such as `params:`");
    for (const auto& item : root) HVD_RETURN_IF_ERROR(read_top(item.first, item.second));
    return Status::ok();
  }

 private:
  Status read_top(const YAML::Node& key, const YAML::Node& node) {
    if (!key.IsScalar()) return Status::invalid_argument(where(key) + "a section needs a name");
    const std::string& section = key.Scalar();
    if (section == "controller") return read_controller(node);
    const std::vector<std::string_view> known = section_names();
    if (std::find(known.begin(), known.end(), section) == known.end()) {
      notices_.push_back(where(key) + "unknown section " + config::quoted(section) +
                         config::did_you_mean(section, known));
      return Status::ok();
    }
    set_section_defaults(section);
    if (node.IsNull()) return Status::ok();
    if (!node.IsMap()) return Status::invalid_argument(where(node) + section + ": expected `key: value` lines");
    for (const auto& item : node) HVD_RETURN_IF_ERROR(read_key(section, item.first, item.second));
    return Status::ok();
  }

  Status read_key(const std::string& section, const YAML::Node& key, const YAML::Node& node) {
    if (!key.IsScalar()) return Status::invalid_argument(where(key) + section + ": a key must be a word");
    const std::string path = section + "." + key.Scalar();
    const FlagRow* row = find_row(path);
    if (row == nullptr) {
      std::vector<std::string_view> known;
      for (const FlagRow& other : flag_table()) {
        if (!other.yaml.empty()) known.push_back(other.yaml);
      }
      notices_.push_back(where(key) + "unknown key " + config::quoted(path) + config::did_you_mean(path, known));
      return Status::ok();
    }
    if (node.IsNull()) return Status::ok();
    const std::string source = where(node) + path;
    if (!node.IsScalar()) return Status::invalid_argument(source + ": expected one value");
    Result<FlagValue> value = parse_flag_value(*row, {node.Scalar()}, source);
    if (!value.is_ok()) return value.status();
    if (row->yaml_inverted) value = FlagValue(!std::get<bool>(value.value()));
    set_if_open(*row, std::move(value).value(), source);
    return Status::ok();
  }

  // As in Horovod, a section that is there but does not say `enabled` decides the switch nevertheless. That of
  // autotuning leaves it off, as it is without the section: its variable stays what the user's environment has.
  void set_section_defaults(const std::string& section) {
    if (section == "stall_check") set_if_open(flag_row("no_stall_check"), false, file_ + ": stall_check");
  }

  Status read_controller(const YAML::Node& node) {
    if (node.IsNull()) return Status::ok();
    const std::string source = where(node) + "controller";
    if (!node.IsScalar()) return Status::invalid_argument(source + ": expected gloo or mpi");
    const Result<int> index = config::parse_choice(node.Scalar(), "gloo|mpi");
    if (!index.is_ok()) return index.status().annotate(source);
    if (given_.has("use_gloo") || given_.has("use_mpi") || given_.has("use_jsrun")) return Status::ok();
    const FlagRow& row = flag_row(index.value() == 0 ? "use_gloo" : "use_mpi");
    set_if_open(row, true, index.value() == 0 ? source : source + ": mpi");
    return Status::ok();
  }

  void set_if_open(const FlagRow& row, FlagValue value, const std::string& source) {
    if (!given_.has(row.dest)) values_.set(row, std::move(value), source);
  }

  static const FlagRow* find_row(const std::string& path) {
    for (const FlagRow& row : flag_table()) {
      if (row.yaml == path) return &row;
    }
    return nullptr;
  }

  static std::vector<std::string_view> section_names() {
    std::vector<std::string_view> names{"controller"};
    for (const FlagRow& row : flag_table()) {
      const std::string_view section = row.yaml.substr(0, row.yaml.find('.'));
      if (!section.empty() && std::find(names.begin(), names.end(), section) == names.end()) names.push_back(section);
    }
    return names;
  }

  std::string where(const YAML::Node& node) const {
    const int line = node.Mark().line;
    return line < 0 ? file_ + ": " : file_ + ":" + std::to_string(line + 1) + ": ";
  }

  std::string file_;
  const FlagValues given_;  // what the command line set: it wins
  FlagValues& values_;
  std::vector<std::string>& notices_;
};

}  // namespace

Status apply_config_text(const std::string& text, std::string_view file, FlagValues& values,
                         std::vector<std::string>& notices) {
  try {
    FlagValues result = values;  // so that nothing changes on an error
    HVD_RETURN_IF_ERROR(ConfigReader(file, result, notices).read(YAML::Load(text)));
    values = std::move(result);
    return Status::ok();
  } catch (const YAML::Exception& error) {
    return Status::invalid_argument(std::string(file) + ":" + std::to_string(error.mark.line + 1) + ": " + error.msg);
  }
}

Status apply_config_file(const std::string& path, FlagValues& values, std::vector<std::string>& notices) {
  HVD_ASSIGN_OR_RETURN(const std::string text,
                       read_input(path, "configuration file " + config::quoted(path), kMaxConfigFileBytes));
  return apply_config_text(text, path, values, notices);
}

}  // namespace hvd::launcher
