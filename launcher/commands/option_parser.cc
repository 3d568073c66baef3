// SPDX-License-Identifier: Apache-2.0
//
// Words and variables to settings. Our own parser rather than a library: torchrun's rules
// (prefixes that count some options and not others, dash and underscore alike, everything after
// the program untouched, defaults from two families of variables, the source of every value) are
// most of the work, and none of them is a library's.
#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include <absl/status/status.h>

#include "launcher/commands/option_table.h"
#include "launcher/commands/option_values.h"
#include "launcher/commands/options.h"
#include "launcher/commands/text.h"
#include "launcher/commands/variables.h"
#include "proto/base/check.h"
#include "proto/base/nearest.h"

namespace muster::launcher {
namespace {

// Flags that only ask something; they have no variable and no place among the settings.
constexpr std::array<std::string_view, 2> kQuestions{"help", "print-config"};

std::string dashed(std::string_view name) {
  std::string text(name);
  std::replace(text.begin(), text.end(), '_', '-');
  return text;
}

bool names(const OptionDef& option, std::string_view name) {
  return option.name == name || (!option.torchrun.empty() && option.torchrun == name);
}

class Parser {
 public:
  Parser(const std::vector<std::string>& args, const EnvironmentMap& environment)
      : args_(args), environment_(environment) {
    line_.settings.resize(option_table().size());
  }

  absl::StatusOr<CommandLine> run() {
    for (std::size_t i = 0; i < option_table().size(); ++i) {
      line_.settings[i].text = option_table()[i].fallback;
    }
    // Words first: whoever asks for help gets it whatever the variables say.
    if (absl::Status status = read_words(); !status.ok()) return status;
    if (line_.help) return std::move(line_);
    if (absl::Status status = read_variables(); !status.ok()) return status;
    return std::move(line_);
  }

 private:
  const std::string* find(const std::string& variable) const {
    const auto found = environment_.find(variable);
    return found == environment_.end() ? nullptr : &found->second;
  }

  absl::Status read_variables() {
    // A launcher inside a worker: the PET_ variables were meant for the launcher outside.
    line_.nested = find("MUSTER_GENERATION") != nullptr && !inherits();
    const bool nested = line_.nested;
    bool inherited = false;
    for (std::size_t i = 0; i < option_table().size(); ++i) {
      const OptionDef& option = option_table()[i];
      for (const std::string& variable : pet_variables(option)) {
        const std::string* text = variable.empty() ? nullptr : find(variable);
        if (text == nullptr) continue;
        inherited = true;
        if (nested) continue;
        if (absl::Status status = take_variable(i, variable, *text); !status.ok()) return status;
      }
      const std::string variable = muster_variable(option);
      if (const std::string* text = find(variable)) {
        if (absl::Status status = take_variable(i, variable, *text); !status.ok()) return status;
      }
    }
    if (nested && inherited) {
      line_.notes.emplace_back(
          "this is a worker of another muster run: inherited PET_ variables are ignored (--inherit "
          "takes them)");
    }
    for (std::string& line : unknown_variables(environment_, nested))
      line_.notes.push_back(std::move(line));
    return absl::OkStatus();
  }

  bool inherits() const {
    const std::size_t index = option_index("inherit");
    if (line_.settings[index].source == "flag") return true;
    const std::string* text = find(muster_variable(option_table()[index]));
    bool on = false;
    return text != nullptr && apply::read_switch(*text, on).ok() && on;
  }

  static std::vector<std::string> pet_variables(const OptionDef& option) {
    // Kubeflow's operator once misspelled it, and pods with the old name are still around.
    if (option.name == "nproc-per-node") return {"PET_N_PROC_PER_NODE", pet_variable(option)};
    return {pet_variable(option)};
  }

  absl::Status take_variable(std::size_t index, const std::string& variable,
                             const std::string& text) {
    const OptionDef& option = option_table()[index];
    if (text.empty() && option.kind != OptionKind::kSwitch) return absl::OkStatus();
    if (option.standing != Standing::kHere && is_off(option, text)) return absl::OkStatus();
    if (option.standing == Standing::kIgnored) {
      ignore(variable, option);
      return absl::OkStatus();
    }
    if (is_service_variable(variable, text)) {
      line_.notes.push_back(cat(variable, " is ignored: it is Kubernetes' for a service"));
      return absl::OkStatus();
    }
    if (line_.settings[index].source == "flag") return absl::OkStatus();
    // Kubeflow writes PET_STANDALONE="" for "yes".
    const bool bare_yes = text.empty() && option.name == "standalone";
    line_.settings[index] = {bare_yes ? "1" : text, variable};
    return absl::OkStatus();
  }

  // PET_RUN_PATH=0 asks for nothing.
  static bool is_off(const OptionDef& option, const std::string& text) {
    bool on = true;
    return option.kind == OptionKind::kSwitch && apply::read_switch(text, on).ok() && !on;
  }

  void ignore(const std::string& written, const OptionDef& option) {
    line_.notes.push_back(cat(written, " is ignored: ", option.help));
  }

  absl::Status read_words() {
    while (next_ < args_.size()) {
      const std::string& word = args_[next_];
      if (word == "--") {
        ++next_;
        break;
      }
      if (word.size() < 2 || word[0] != '-') break;
      ++next_;
      absl::Status status = word.starts_with("--") ? read_long(word) : read_short(word);
      if (!status.ok()) return status;
      if (line_.help) return absl::OkStatus();
    }
    line_.program.assign(args_.begin() + static_cast<std::ptrdiff_t>(next_), args_.end());
    return absl::OkStatus();
  }

  absl::Status read_long(const std::string& word) {
    const std::size_t equals = word.find('=');
    const std::string written = word.substr(0, equals);
    std::optional<std::string> value;
    if (equals != std::string::npos) value = word.substr(equals + 1);
    const std::string name = dashed(std::string_view(written).substr(2));

    for (const std::string_view question : kQuestions) {
      if (name == question) return ask(written, question, value);
    }
    for (std::size_t i = 0; i < option_table().size(); ++i) {
      if (names(option_table()[i], name)) return take_flag(i, written, std::move(value));
    }
    return read_prefix(written, name, std::move(value));
  }

  // As torchrun's parser would: any unambiguous prefix of its own flags.
  absl::Status read_prefix(const std::string& written, const std::string& name,
                           std::optional<std::string> value) {
    std::vector<std::size_t> matches;
    std::vector<std::string> candidates;
    for (std::size_t i = 0; i < option_table().size(); ++i) {
      const OptionDef& option = option_table()[i];
      if (option.torchrun.empty() || !option.torchrun.starts_with(name)) continue;
      matches.push_back(i);
      candidates.push_back(cat("--", option.torchrun));
    }
    const bool help = std::string_view("help").starts_with(name);
    if (help) candidates.emplace_back("--help");
    if (name.empty() || candidates.empty()) return unknown(written);
    if (candidates.size() > 1) {
      return absl::InvalidArgumentError(
          cat(written, " is ambiguous: it could be ", join(candidates, ", ")));
    }
    return help ? ask(written, "help", value) : take_flag(matches[0], written, std::move(value));
  }

  absl::Status read_short(const std::string& word) {
    if (word == "-h") return ask(word, "help", std::nullopt);
    for (std::size_t i = 0; i < option_table().size(); ++i) {
      const OptionDef& option = option_table()[i];
      if (option.letter == 0 || word[1] != option.letter) continue;
      if (word.size() == 2) return take_flag(i, word, std::nullopt);
      if (option.kind == OptionKind::kSwitch) break;
      return take_flag(i, word.substr(0, 2), word.substr(word[2] == '=' ? 3 : 2));
    }
    return unknown(word);
  }

  absl::Status ask(const std::string& written, std::string_view question,
                   const std::optional<std::string>& value) {
    if (value) return absl::InvalidArgumentError(cat(written, " takes no value"));
    (question == "help" ? line_.help : line_.print_config) = true;
    return absl::OkStatus();
  }

  absl::Status take_flag(std::size_t index, const std::string& written,
                         std::optional<std::string> value) {
    const OptionDef& option = option_table()[index];
    if (option.kind == OptionKind::kSwitch) {
      if (value) return absl::InvalidArgumentError(cat(written, " takes no value"));
      value = "1";
    } else if (!value) {
      const bool dash_word = next_ < args_.size() && args_[next_].size() > 1 &&
                             args_[next_][0] == '-' && !is_digit(args_[next_][1]);
      if (next_ == args_.size() || dash_word) {
        return absl::InvalidArgumentError(cat(written, " needs a value"));
      }
      value = args_[next_++];
    }
    if (option.standing == Standing::kIgnored) {
      ignore(flag_name(option, written), option);
    } else {
      line_.settings[index] = {std::move(*value), "flag"};
    }
    return absl::OkStatus();
  }

  static bool is_digit(char c) { return c >= '0' && c <= '9'; }

  // The full name, also where a prefix or a letter was written.
  static std::string flag_name(const OptionDef& option, const std::string& written) {
    return written.size() == 2 ? written : cat("--", option.name);
  }

  static absl::Status unknown(const std::string& written) {
    std::vector<std::string> candidates{"--help", "--print-config"};
    for (const OptionDef& option : option_table()) {
      if (option.standing != Standing::kHere) continue;
      candidates.push_back(cat("--", option.name));
      if (!option.torchrun.empty() && option.torchrun != option.name) {
        candidates.push_back(cat("--", option.torchrun));
      }
    }
    const std::string near = nearest(dashed(written), candidates);
    return absl::InvalidArgumentError(
        cat("unknown flag ", written,
            near.empty() ? "; `muster run --help` lists them" : cat("; did you mean ", near, "?")));
  }

  const std::vector<std::string>& args_;
  const EnvironmentMap& environment_;
  std::size_t next_ = 0;
  CommandLine line_;
};

}  // namespace

absl::StatusOr<CommandLine> parse_command_line(const std::vector<std::string>& args,
                                               const EnvironmentMap& environment) {
  return Parser(args, environment).run();
}

std::size_t option_index(std::string_view name) {
  const auto table = option_table();
  const auto found = std::find_if(table.begin(), table.end(),
                                  [&](const OptionDef& option) { return option.name == name; });
  MUSTER_CHECK(found != table.end());
  return static_cast<std::size_t>(found - table.begin());
}

std::vector<std::string> option_variables() {
  std::vector<std::string> variables;
  for (const OptionDef& option : option_table())
    variables.push_back(muster_variable(option));
  return variables;
}

}  // namespace muster::launcher
