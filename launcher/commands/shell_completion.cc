// SPDX-License-Identifier: Apache-2.0
#include "launcher/commands/shell_completion.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include "launcher/commands/option_help.h"
#include "launcher/commands/option_table.h"
#include "launcher/commands/text.h"

namespace muster::launcher {
namespace {

struct Flag {
  std::string name;  // "--stop-grace", "-r"
  std::string metavar;
  std::string help;
  bool takes_value = false;
};

// All that `muster run` does something with, other names of theirs too.
std::vector<Flag> run_flags() {
  std::vector<Flag> flags;
  for (const OptionDef& option : option_table()) {
    if (option.standing != Standing::kHere) continue;
    Flag flag{cat("--", option.name), std::string(option.metavar), std::string(option.help),
              option.kind != OptionKind::kSwitch};
    flags.push_back(flag);
    if (!option.torchrun.empty() && option.torchrun != option.name) {
      flag.name = cat("--", option.torchrun);
      flags.push_back(flag);
    }
    if (option.letter != 0) {
      flag.name = cat("-", std::string(1, option.letter));
      flags.push_back(flag);
    }
  }
  flags.push_back({"--print-config", "", "print every value with its source, and exit", false});
  flags.push_back({"--help", "", "all flags, with defaults and variables", false});
  return flags;
}

// The words of "N|auto|gpu|cpu" that can be typed as they are: auto gpu cpu.
std::vector<std::string> choices(const std::string& metavar) {
  std::vector<std::string> words;
  std::string word;
  for (const char c : metavar + "|") {
    if (c != '|') {
      word += c;
      continue;
    }
    const bool literal = !word.empty() && std::all_of(word.begin(), word.end(), [](char letter) {
      return (std::islower(static_cast<unsigned char>(letter)) != 0) || letter == '-';
    });
    if (literal) words.push_back(word);
    word.clear();
  }
  return words;
}

bool names_a_file(const std::string& metavar) {
  return metavar.find("FILE") != std::string::npos || metavar.find("PATH") != std::string::npos ||
         metavar.find("DIR") != std::string::npos;
}

std::string joined(const std::vector<std::string>& words) {
  std::string all;
  for (const std::string& word : words)
    all += cat(all.empty() ? "" : " ", word);
  return all;
}

// Each of `text`'s characters that is among `special` with a backslash before it.
std::string escaped(std::string_view text, std::string_view special) {
  std::string out;
  for (const char c : text) {
    if (special.find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

// As part of a word between single quotes.
std::string quoted(const std::string& text) {
  std::string out;
  for (const char c : text)
    out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out;
}

// Up to the first end of a sentence or clause, for a line in a list.
std::string in_short(const std::string& help) {
  return help.substr(0, help.find_first_of(";("));
}

// roff reads a line that begins with a dot or a quote as a request, and hyphens as it likes.
std::string roff(std::string_view text) {
  std::string out;
  bool begins = true;
  for (const char c : text) {
    if (begins && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
    begins = c == '\n';
  }
  return out;
}

}  // namespace

std::string bash_completion(const std::vector<std::string>& commands) {
  std::vector<std::string> names;
  std::vector<std::string> valued;
  std::string cases;
  for (const Flag& flag : run_flags()) {
    names.push_back(flag.name);
    if (!flag.takes_value) continue;
    valued.push_back(flag.name);
    const std::vector<std::string> words = choices(flag.metavar);
    if (!words.empty()) {
      cases += cat("    ", flag.name, ") COMPREPLY=($(compgen -W \"", joined(words),
                   "\" -- \"$cur\")); return ;;\n");
    } else if (names_a_file(flag.metavar)) {
      cases += cat("    ", flag.name, ") COMPREPLY=($(compgen -f -- \"$cur\")); return ;;\n");
    }
  }
  return cat(
      "# bash completion of muster: source <(muster completion bash)\n"
      "_muster() {\n"
      "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} i word\n"
      "  COMPREPLY=()\n"
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
      "    COMPREPLY=($(compgen -W \"",
      joined(commands),
      "\" -- \"$cur\"))\n"
      "    return\n"
      "  fi\n"
      "  [ \"${COMP_WORDS[1]}\" = run ] || return\n"
      "  # Behind the program everything is the program's.\n"
      "  for ((i = 2; i < COMP_CWORD; i++)); do\n"
      "    word=${COMP_WORDS[i]}\n"
      "    case \" ",
      joined(valued),
      " \" in *\" $word \"*) i=$((i + 1)); continue ;; esac\n"
      "    case \"$word\" in -?*) [ \"$word\" != -- ] && continue ;; esac\n"
      "    COMPREPLY=($(compgen -f -- \"$cur\"))\n"
      "    return\n"
      "  done\n"
      "  case \"$prev\" in\n",
      cases,
      "  esac\n"
      "  case \" ",
      joined(valued),
      " \" in *\" $prev \"*) return ;; esac\n"
      "  if [[ $cur == -* ]]; then\n"
      "    COMPREPLY=($(compgen -W \"",
      joined(names),
      "\" -- \"$cur\"))\n"
      "  else\n"
      "    COMPREPLY=($(compgen -f -- \"$cur\") $(compgen -c -- \"$cur\"))\n"
      "  fi\n"
      "}\n"
      "complete -o filenames -F _muster muster\n");
}

std::string zsh_completion(const std::vector<std::string>& commands) {
  std::string flags;
  for (const Flag& flag : run_flags()) {
    std::string spec = cat(flag.name, "[", escaped(in_short(flag.help), "[]:\\"), "]");
    if (flag.takes_value) {
      const std::vector<std::string> words = choices(flag.metavar);
      spec += cat(":", escaped(flag.metavar, "[]:\\"), ":",
                  !words.empty()               ? cat("(", joined(words), ")")
                  : names_a_file(flag.metavar) ? "_files"
                                               : "");
    }
    flags += cat("    '", quoted(spec), "' \\\n");
  }
  return cat(
      "#compdef muster\n"
      "# zsh completion of muster: source <(muster completion zsh)\n"
      "_muster() {\n"
      "  if (( CURRENT == 2 )); then\n"
      "    compadd -- ",
      joined(commands),
      "\n"
      "    return\n"
      "  fi\n"
      "  [[ $words[2] == run ]] || return\n"
      "  shift words\n"
      "  (( CURRENT-- ))\n"
      "  _arguments -S \\\n",
      flags,
      "    '*::program:_normal'\n"
      "}\n"
      "compdef _muster muster\n");
}

std::string run_manual(std::string_view version) {
  std::string page = cat(".TH MUSTER-RUN 1 \"\" \"muster ", version, "\" \"User Commands\"\n",
                         ".SH NAME\nmuster\\-run \\- this node's part of a distributed job\n");
  const std::string help = run_help();
  std::optional<OptionGroup> group;
  page += cat(".SH DESCRIPTION\n.nf\n", roff(help.substr(0, help.find("\nThe job\n"))), ".fi\n");
  page += ".SH OPTIONS\n";
  for (const OptionDef& option : option_table()) {
    if (option.standing != Standing::kHere) continue;
    if (group != option.group) {
      group = option.group;
      page += cat(".SS ", group_title(option.group), "\n");
    }
    page += ".TP\n";
    if (option.letter != 0) page += cat(".BR \\-", std::string(1, option.letter), " \", \" \\c\n");
    page += cat("\\fB\\-\\-", roff(option.name), "\\fR \\fI", roff(option.metavar), "\\fR\n",
                roff(option.help));
    if (!option.fallback.empty() && option.kind != OptionKind::kSwitch) {
      page += cat(" [", roff(option.fallback), "]");
    }
    page += cat("\n.br\nVariable: ", roff(muster_variable(option)));
    const std::string pet = pet_variable(option);
    if (!pet.empty()) page += cat(", ", pet);
    page += "\n";
  }
  constexpr std::string_view kOther = "\nOther\n";
  const std::size_t codes = help.rfind("\nExit codes:");
  const std::size_t other = help.rfind(kOther) + kOther.size();
  page += cat(".SS Other\n.nf\n", roff(help.substr(other, codes - other)), ".fi\n");
  page += cat(".SH EXIT STATUS\n.nf\n", roff(help.substr(codes + 1)), ".fi\n");
  return page;
}

}  // namespace muster::launcher
