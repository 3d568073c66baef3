// SPDX-License-Identifier: Apache-2.0
#include "launcher/commands/program.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "launcher/commands/node_slots.h"
#include "launcher/commands/text.h"

namespace muster::launcher {
namespace {

namespace fs = std::filesystem;

// A directory of its own, entered for the test's time.
class Scratch {
 public:
  Scratch() : before_(fs::current_path()) {
    std::string name = (fs::temp_directory_path() / "muster-program-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    root_ = name;
    fs::current_path(root_);
  }
  ~Scratch() {
    fs::current_path(before_);
    fs::remove_all(root_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  std::string file(const std::string& name, const std::string& text, bool runs = false) const {
    const fs::path path = root_ / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
    if (runs) fs::permissions(path, fs::perms::owner_exec, fs::perm_options::add);
    return path.string();
  }
  std::string path(const std::string& name) const { return (root_ / name).string(); }

 private:
  fs::path before_;
  fs::path root_;
};

RunOptions with(std::vector<std::string> program) {
  RunOptions options;
  options.program = std::move(program);
  return options;
}

using Argv = std::vector<std::string>;

}  // namespace

TEST_CASE("Python programs get the interpreter, unbuffered") {
  const Scratch scratch;
  const std::string python = scratch.file("bin/python3", "#!/bin/sh\n", true);
  const EnvironmentMap environment{{"PATH", scratch.path("bin")}};
  scratch.file("train.py", "");
  scratch.file("pack.pyz", "", true);
  scratch.file("dir/__main__.py", "");
  scratch.file("script", "print()");
  const auto argv = [&](RunOptions options) { return resolve_program(options, environment).argv; };
  CHECK(argv(with({"train.py", "-a", ""})) == Argv{python, "-u", "train.py", "-a", ""});
  CHECK(argv(with({"./pack.pyz"})) == Argv{python, "-u", "./pack.pyz"});
  CHECK(argv(with({"dir"})) == Argv{python, "-u", "dir"});
  CHECK(argv(with({"script"})) == Argv{python, "-u", "script"});
  RunOptions module = with({"pkg.train", "x"});
  module.module = true;
  CHECK(argv(module) == Argv{python, "-u", "-m", "pkg.train", "x"});
}

TEST_CASE("the interpreter's order") {
  const Scratch scratch;
  const std::string by_name = scratch.file("bin/python", "", true);
  scratch.file("bin/pypy", "", true);
  const std::string venv = scratch.file("venv/bin/python", "", true);
  const std::string conda = scratch.file("conda/bin/python", "", true);
  EnvironmentMap environment{{"PATH", scratch.path("bin")}};
  RunOptions options = with({"m"});
  options.module = true;
  const auto chosen = [&] { return resolve_program(options, environment).argv.at(0); };
  CHECK(chosen() == by_name);
  environment["CONDA_PREFIX"] = scratch.path("conda");
  CHECK(chosen() == conda);
  environment["VIRTUAL_ENV"] = scratch.path("venv");
  CHECK(chosen() == venv);
  environment["VIRTUAL_ENV"] = scratch.path("gone");
  CHECK(chosen() == conda);
  environment["PYTHON_EXEC"] = "pypy";
  CHECK(chosen() == scratch.path("bin/pypy"));
  options.python = venv;
  CHECK(chosen() == venv);
  options.python = scratch.path("no-such");
  const Program missing = resolve_program(options, environment);
  CHECK(missing.exit_code == 127);
  CHECK(missing.error.find("--python " + options.python) == 0);
}

TEST_CASE("programs run as they are") {
  const Scratch scratch;
  const std::string tool = scratch.file("bin/tool", "#!/bin/sh\n", true);
  scratch.file("here", "#!/bin/sh\n", true);
  const EnvironmentMap environment{{"PATH", "/nowhere:" + scratch.path("bin")}};
  CHECK(resolve_program(with({"tool", "a"}), environment).path == tool);
  CHECK(resolve_program(with({"tool", "a"}), environment).argv == Argv{"tool", "a"});
  CHECK(resolve_program(with({"here"}), environment).path == "./here");
  CHECK(resolve_program(with({"/bin/sh"}), environment).argv == Argv{"/bin/sh"});
  // A directory of the name of a program does not hide it.
  fs::create_directory(scratch.path("tool"));
  CHECK(resolve_program(with({"tool"}), environment).path == tool);
  scratch.file("run.py", "#!/bin/sh\n", true);
  RunOptions options = with({"run.py"});
  options.no_python = true;
  CHECK(resolve_program(options, environment).path == "./run.py");
}

TEST_CASE("what cannot run is named") {
  const Scratch scratch;
  const EnvironmentMap environment{{"PATH", scratch.path("bin")}};
  scratch.file("bin/locked", "#!/bin/sh\n");
  scratch.file("train.py", "");
  scratch.file("elf",
               "\x7f"
               "ELF....");
  fs::create_directory(scratch.path("plain"));
  const auto result = [&](const std::string& name) {
    return resolve_program(with({name}), environment);
  };
  CHECK(result("nope").exit_code == 127);
  CHECK(result("nope").error == "nope: not found, neither in this directory nor in PATH");
  CHECK(result("./nope").error == "./nope: No such file or directory");
  CHECK(result("./nope").exit_code == 127);
  fs::create_symlink("gone", scratch.path("link"));
  CHECK(result("./link").error == "./link: it is a link to gone, which is not there");
  CHECK(result("./link").exit_code == 127);
  CHECK(result("elf").error == "elf: Permission denied (it is not executable: chmod +x)");
  CHECK(
      result("locked").error.ends_with("bin/locked: Permission denied (it is not executable: "
                                       "chmod +x)"));
  for (const char* directory : {"plain", "./plain"}) {
    CHECK(result(directory).exit_code == 126);
    CHECK(result(directory).error ==
          std::string(directory) +
              ": is a directory without __main__.py: there is nothing to run in it");
  }
  CHECK(result("locked").exit_code == 126);
  CHECK(result("elf").exit_code == 126);
  CHECK(result("./plain").exit_code == 126);
  CHECK(result("plain").exit_code == 126);
  CHECK(result("train.py").exit_code == 127);
  CHECK(result("train.py").error.find("no Python interpreter for train.py") == 0);
}

TEST_CASE("workers by processors") {
  const Scratch scratch;
  NodeProbe probe{.proc = scratch.path("proc"),
                  .cgroup = scratch.path("cg"),
                  .devices = scratch.path("dev"),
                  .affinity = 8};
  CHECK(count_cpus(probe) == 8);
  scratch.file("proc/self/cgroup", "0::/a/b\n");
  scratch.file("cg/a/b/cpu.max", "max 100000\n");
  CHECK(count_cpus(probe) == 8);
  scratch.file("cg/a/cpu.max", "250000 100000\n");
  CHECK(count_cpus(probe) == 3);  // 2.5 processors, rounded up
  scratch.file("cg/cpu.max", "50000 100000\n");
  CHECK(count_cpus(probe) == 1);
  CHECK(*count_slots("cpu", {}, probe) == 1);

  const Scratch old;
  probe.proc = old.path("proc");
  probe.cgroup = old.path("cg");
  old.file("proc/self/cgroup", "5:cpu,cpuacct:/pod\n4:memory:/pod\n");
  old.file("cg/cpu,cpuacct/pod/cpu.cfs_quota_us", "400000\n");
  old.file("cg/cpu,cpuacct/pod/cpu.cfs_period_us", "100000\n");
  CHECK(count_cpus(probe) == 4);
  old.file("cg/cpu,cpuacct/pod/cpu.cfs_quota_us", "-1\n");
  CHECK(count_cpus(probe) == 8);
  probe.affinity = 0;
  CHECK(count_cpus(probe) >= 1);
}

TEST_CASE("workers by devices") {
  const Scratch scratch;
  const NodeProbe probe{.proc = scratch.path("proc"),
                        .cgroup = scratch.path("cg"),
                        .devices = scratch.path("dev"),
                        .affinity = 5};
  const absl::StatusOr<std::uint32_t> none = count_slots("gpu", {}, probe);
  REQUIRE_FALSE(none.ok());
  CHECK(cat(none.status().message()).find("gpu: no GPU is visible (no ") == 0);
  CHECK(*count_slots("auto", {}, probe) == 5);
  for (const char* name : {"nvidia0", "nvidia1", "nvidia2", "nvidiactl", "nvidia-uvm"}) {
    scratch.file(cat("dev/", name), "");
  }
  const auto visible = [&](const std::string& mask) {
    std::string reason;
    return count_gpus({{"CUDA_VISIBLE_DEVICES", mask}}, probe, reason);
  };
  CHECK(*count_slots("gpu", {}, probe) == 3);
  CHECK(*count_slots("auto", {}, probe) == 3);
  CHECK(visible("0,2") == 2);
  CHECK(visible(" 1 , 0 ") == 2);
  CHECK(visible("0,-1,2") == 1);  // as the driver reads it: up to the first that is none
  CHECK(visible("0,7,1") == 1);
  CHECK(visible("GPU-aa,GPU-bb") == 2);
  CHECK(visible("MIG-1") == 1);
  CHECK(visible("") == 0);
  CHECK(visible("1,1") == 0);
  CHECK_FALSE(count_slots("gpu", {{"CUDA_VISIBLE_DEVICES", ""}}, probe).ok());
}

}  // namespace muster::launcher
