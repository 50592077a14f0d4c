// What is made of the flag table for other programs: the manual page, and the completions of shells.
#include <algorithm>

#include "launcher/cli/flag_table.h"
#include "launcher/cli/texts.h"

namespace hvd::launcher {
namespace {

std::string replaced(std::string_view text, char what, std::string_view by) {
  std::string out;
  for (const char c : text) c == what ? out.append(by) : out += c;
  return out;
}

// troff takes a leading dot for a request, '-' for a hyphen and '\' for an escape.
std::string as_troff(std::string_view text) { return replaced(replaced(text, '\\', "\\e"), '-', "\\-"); }

std::string in_single_quotes(std::string_view text) { return "'" + replaced(text, '\'', "'\\''") + "'"; }

bool takes_file(const FlagRow& row) {
  return row.metavar == "FILE" || row.metavar == "DIR" || row.metavar == "PROGRAM";
}

std::string spaced(std::string_view bars) { return replaced(bars, '|', " "); }

std::string row_of_manual(const FlagRow& row) {
  std::string names;
  for (const std::string_view side : {row.on, row.off}) {
    for (const std::string_view name : split_bars(side)) {
      names += (names.empty() ? "\\fB" : ", \\fB") + as_troff(name) + "\\fR";
    }
  }
  if (!row.metavar.empty()) names += " \\fI" + as_troff(row.metavar) + "\\fR";
  std::string text = as_troff(row.help);
  if (!variable_of(row).empty()) text += ". Sets " + as_troff(variable_of(row));
  if (!row.yaml.empty()) text += ". In a configuration file: " + as_troff(row.yaml);
  return ".TP\n" + names + "\n" + text + ".\n";
}

// For each flag with values of its own: "--color) COMPREPLY=(...);;".
std::string bash_cases() {
  std::string cases;
  for (const FlagRow& row : flag_table()) {
    if (value_count(row.kind) == 0) continue;
    std::string action = ":";
    if (!row.choices.empty()) action = "COMPREPLY=($(compgen -W '" + spaced(row.choices) + "' -- \"$cur\"))";
    if (takes_file(row)) action = "COMPREPLY=($(compgen -f -- \"$cur\"))";
    cases += "    " + std::string(row.on) + ") " + action + "; return;;\n";
  }
  return cases;
}

std::string all_spellings() {
  std::string words;
  for (const FlagSpelling& spelling : flag_spellings())
    words += (words.empty() ? "" : " ") + std::string(spelling.text);
  return words;
}

std::string flags_with_values() {
  std::string bars;
  for (const FlagRow& row : flag_table()) {
    if (value_count(row.kind) == 1) bars += (bars.empty() ? "" : "|") + std::string(row.on);
  }
  return bars;
}

// Flags come before the command: from its first word on, the shell completes as for that.
std::string bash_completion() {
  return "_horovodrun() {\n"
         "  local cur=\"${COMP_WORDS[COMP_CWORD]}\" prev=\"${COMP_WORDS[COMP_CWORD-1]}\" i\n"
         "  COMPREPLY=()\n"
         "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
         "    case \"${COMP_WORDS[i]}\" in\n"
         "    " +
         flags_with_values() +
         ") ((i++));;\n"
         "    --blacklist-cooldown-range) ((i += 2));;\n"
         "    -*) ;;\n"
         "    *) COMPREPLY=($(compgen -f -- \"$cur\")); return;;\n"
         "    esac\n"
         "  done\n"
         "  case \"$prev\" in\n" +
         bash_cases() +
         "  esac\n"
         "  case \"$cur\" in\n"
         "  -*) COMPREPLY=($(compgen -W '" +
         all_spellings() +
         "' -- \"$cur\"));;\n"
         "  *) COMPREPLY=($(compgen -c -- \"$cur\") $(compgen -f -- \"$cur\"));;\n"
         "  esac\n"
         "}\n"
         "complete -o filenames -F _horovodrun horovodrun\n";
}

std::string zsh_value(const FlagRow& row) {
  if (value_count(row.kind) == 0) return "";
  std::string name = replaced(replaced(row.metavar, ':', ""), '[', "(");
  name = replaced(name, ']', ")");
  const std::string one = ":" + name + ":";
  if (!row.choices.empty()) return one + "(" + spaced(row.choices) + ")";
  const std::string with_action = one + (takes_file(row) ? "_files" : " ");
  return value_count(row.kind) == 2 ? with_action + with_action : with_action;
}

std::string zsh_completion() {
  std::string specs;
  for (const FlagSpelling& spelling : flag_spellings()) {
    std::string help = replaced(replaced(spelling.row->help, '\\', ""), '[', "(");
    help = replaced(replaced(help, ']', ")"), ':', "\\:");
    const std::string spec = "*" + std::string(spelling.text) + "[" + help + "]" + zsh_value(*spelling.row);
    specs += "  " + in_single_quotes(spec) + " \\\n";
  }
  return "#compdef horovodrun\n_arguments -S \\\n" + specs +
         "  '(-)1:command:_command_names -e' '*::arguments:_normal'\n";
}

std::string fish_completion() {
  std::string lines =
      "function __horovodrun_no_command\n"
      "  set -l words (commandline -opc)\n"
      "  set -e words[1]\n"
      "  set -l skip 0\n"
      "  for word in $words\n"
      "    if test $skip -gt 0; set skip (math $skip - 1); continue; end\n"
      "    switch $word\n"
      "    case " +
      spaced(flags_with_values()) +
      "; set skip 1\n"
      "    case --blacklist-cooldown-range; set skip 2\n"
      "    case '-*'\n"
      "    case '*'; return 1\n"
      "    end\n"
      "  end\n"
      "end\n";
  for (const FlagSpelling& spelling : flag_spellings()) {
    const FlagRow& row = *spelling.row;
    const bool is_long = spelling.text.starts_with("--");
    const std::string_view name = spelling.text.substr(is_long ? 2 : 1);
    lines += "complete -c horovodrun -n __horovodrun_no_command -" +
             std::string(is_long           ? "l"
                         : name.size() > 1 ? "o"
                                           : "s") +
             " " + std::string(name) + " -d " + in_single_quotes(replaced(row.help, '\\', ""));
    if (value_count(row.kind) > 0) {
      lines += takes_file(row) ? " -r -F" : " -x";
      if (!row.choices.empty()) lines += " -a " + in_single_quotes(spaced(row.choices));
    }
    lines += "\n";
  }
  return lines;
}

}  // namespace

std::string man_page() {
  std::string out =
      ".TH HOROVODRUN 1 \"\" \"Horovod " HVD_VERSION
      "\" \"User Commands\"\n"
      ".SH NAME\nhorovodrun \\- start a Horovod job\n"
      ".SH SYNOPSIS\n\\fBhorovodrun\\fR \\fB\\-np\\fR \\fIN\\fR [\\fIflags\\fR] \\fIcommand\\fR [\\fIarguments\\fR]\n"
      ".SH DESCRIPTION\nStarts N processes of the command on the given hosts and joins them into one Horovod job. "
      "Flags "
      "come before the command; everything after its first word belongs to the command.\n";
  for (const HelpHeading& heading : help_headings()) {
    std::string title(heading.title);
    std::ranges::transform(title, title.begin(), [](char c) { return c >= 'a' && c <= 'z' ? c - 32 : c; });
    out += ".SH " + title + "\n";
    for (const FlagRow& row : flag_table()) {
      if (row.section == heading.section) out += row_of_manual(row);
    }
  }
  return out +
         ".SH EXIT STATUS\n"
         ".TP\n0\nAll ranks ended with 0.\n"
         ".TP\n1\nA host was lost or did not answer; a check of \\fB\\-\\-check\\fR has failed.\n"
         ".TP\n2\nThe command line is wrong.\n"
         ".TP\n124\nThe job ran for as long as \\fB\\-\\-timeout\\fR allows.\n"
         ".TP\n126, 127\nThe command cannot be executed, is not there.\n"
         ".TP\n141\nNobody takes the output any more.\n"
         ".TP\n128 + n\nhorovodrun got signal n.\n"
         ".TP\nothers\nThat of the first rank that failed; 128 + n where signal n ended it.\n";
}

std::string completion_script(std::string_view shell) {
  if (shell == "bash") return bash_completion();
  return shell == "zsh" ? zsh_completion() : fish_completion();
}

}  // namespace hvd::launcher
