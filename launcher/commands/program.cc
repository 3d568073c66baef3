// SPDX-License-Identifier: Apache-2.0
#include "launcher/commands/program.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <optional>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "agent/shell/exec_error.h"
#include "launcher/commands/text.h"

namespace muster::launcher {
namespace {

constexpr int kNotFound = 127;
constexpr int kNotExecutable = 126;

Program refuse(int exit_code, std::string path, std::string error) {
  return {.path = std::move(path), .argv = {}, .exit_code = exit_code, .error = std::move(error)};
}

enum class FileKind { kNone, kRegular, kDirectory, kOther };

FileKind kind_of(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return FileKind::kNone;
  if (S_ISREG(info.st_mode)) return FileKind::kRegular;
  return S_ISDIR(info.st_mode) ? FileKind::kDirectory : FileKind::kOther;
}

bool executable(const std::string& path) {
  return kind_of(path) == FileKind::kRegular && access(path.c_str(), X_OK) == 0;
}

bool is_elf(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return false;
  std::array<char, 4> magic{};
  const ssize_t got = read(file, magic.data(), magic.size());
  close(file);
  return got == 4 && std::memcmp(magic.data(),
                                 "\x7f"
                                 "ELF",
                                 4) == 0;
}

std::string value_of(const EnvironmentMap& environment, const std::string& name) {
  const auto found = environment.find(name);
  return found == environment.end() ? std::string() : found->second;
}

// As execvp(3) does: an empty entry is the current directory. `blocked` is set to a file that has
// the name but may not be executed.
std::optional<std::string> search_path(const std::string& name, const EnvironmentMap& environment,
                                       std::string* blocked = nullptr) {
  const auto found = environment.find("PATH");
  const std::string path =
      found == environment.end() ? "/usr/local/bin:/usr/bin:/bin" : found->second;
  for (const std::string_view directory : split(path, ':')) {
    const std::string candidate = cat(directory.empty() ? "." : directory, "/", name);
    if (executable(candidate)) return candidate;
    if (blocked != nullptr && blocked->empty() && kind_of(candidate) == FileKind::kRegular) {
      *blocked = candidate;
    }
  }
  return std::nullopt;
}

// Path of the interpreter, or why there is none.
Program find_python(const RunOptions& options, const EnvironmentMap& environment) {
  const std::array<std::pair<std::string, std::string>, 4> chosen{
      {{"--python", options.python},
       {"PYTHON_EXEC", value_of(environment, "PYTHON_EXEC")},
       {"VIRTUAL_ENV", value_of(environment, "VIRTUAL_ENV")},
       {"CONDA_PREFIX", value_of(environment, "CONDA_PREFIX")}}};
  for (const auto& [source, value] : chosen) {
    if (value.empty()) continue;
    const bool prefix = source == "VIRTUAL_ENV" || source == "CONDA_PREFIX";
    std::string path = prefix ? value + "/bin/python" : value;
    if (prefix && !executable(path)) continue;  // left over from a removed environment
    if (path.find('/') == std::string::npos) {
      const std::optional<std::string> found = search_path(path, environment);
      if (!found) return refuse(kNotFound, path, cat(source, " ", path, ": not found in PATH"));
      path = *found;
    }
    if (kind_of(path) == FileKind::kNone) {
      return refuse(kNotFound, path, cat(source, " ", path, ": not found"));
    }
    if (!executable(path)) {
      return refuse(kNotExecutable, path, cat(source, " ", path, ": not executable"));
    }
    return {.path = path, .argv = {path}, .exit_code = 0, .error = {}};
  }
  for (const char* name : {"python3", "python"}) {
    if (const auto found = search_path(name, environment)) {
      return {.path = *found, .argv = {*found}, .exit_code = 0, .error = {}};
    }
  }
  return refuse(kNotFound, "python3",
                cat("no Python interpreter for ", options.program[0],
                    ": neither python3 nor python is in PATH (--python names "
                    "one, --no-python does without)"));
}

Program with_python(const RunOptions& options, const EnvironmentMap& environment,
                    const std::string& name) {
  Program program = find_python(options, environment);
  if (!program.ok()) return program;
  program.argv.emplace_back("-u");
  if (options.module) program.argv.emplace_back("-m");
  program.argv.push_back(name);
  program.argv.insert(program.argv.end(), options.program.begin() + 1, options.program.end());
  return program;
}

Program directly(const RunOptions& options, const std::string& path) {
  return {.path = path, .argv = options.program, .exit_code = 0, .error = {}};
}

// --run-path: a script, whatever its name and its rights.
Program as_script(const RunOptions& options, const EnvironmentMap& environment,
                  const std::string& name) {
  const FileKind kind = kind_of(name);
  if (kind == FileKind::kNone) {
    const int error = errno;
    return refuse(kNotFound, name, cat("--run-path ", agent::explain_exec(name, error)));
  }
  if (kind == FileKind::kRegular && access(name.c_str(), R_OK) != 0) {
    return refuse(kNotExecutable, name, cat("--run-path ", name, ": ", std::strerror(errno)));
  }
  return with_python(options, environment, name);
}

}  // namespace

Program resolve_program(const RunOptions& options, const EnvironmentMap& environment) {
  const std::string& name = options.program[0];
  if (options.module) return with_python(options, environment, name);
  if (options.run_path) return as_script(options, environment, name);

  const bool slash = name.find('/') != std::string::npos;
  const FileKind here = kind_of(name);
  const std::string_view directory =
      options.no_python ? ": is a directory, which --no-python does not run"
                        : ": is a directory without __main__.py: there is nothing to run in it";
  if (here == FileKind::kDirectory && !options.no_python) {
    if (kind_of(name + "/__main__.py") == FileKind::kRegular) {
      return with_python(options, environment, name);
    }
    if (slash) return refuse(kNotExecutable, name, cat(name, directory));
  }
  if (here == FileKind::kRegular) {
    const bool python_name = name.ends_with(".py") || name.ends_with(".pyz");
    const bool may_run = access(name.c_str(), X_OK) == 0;
    if (!options.no_python && (python_name || (!may_run && !is_elf(name)))) {
      if (access(name.c_str(), R_OK) != 0) {
        return refuse(kNotExecutable, name, cat(name, ": ", std::strerror(errno)));
      }
      return with_python(options, environment, name);
    }
    if (!may_run) return refuse(kNotExecutable, name, agent::explain_exec(name, EACCES));
    return directly(options, slash ? name : "./" + name);
  }
  if (slash) {
    if (here == FileKind::kNone) {
      const int error = errno;
      return refuse(error == EACCES ? kNotExecutable : kNotFound, name,
                    agent::explain_exec(name, error));
    }
    return refuse(kNotExecutable, name,
                  cat(name, here == FileKind::kDirectory ? directory : ": not an executable file"));
  }
  std::string blocked;
  if (const auto found = search_path(name, environment, &blocked)) {
    return directly(options, *found);
  }
  if (!blocked.empty()) {
    return refuse(kNotExecutable, blocked, agent::explain_exec(blocked, EACCES));
  }
  if (here == FileKind::kDirectory) return refuse(kNotExecutable, name, cat(name, directory));
  return refuse(kNotFound, name, cat(name, ": not found, neither in this directory nor in PATH"));
}

}  // namespace muster::launcher
