// SPDX-License-Identifier: Apache-2.0
//
// The words are checked against what execve really answers for a file, not against a number that
// the test made up.
#include "agent/shell/exec_error.h"

#include <cerrno>
#include <cstring>
#include <elf.h>
#include <fstream>
#include <sched.h>
#include <string>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "tests/support/temp_dir.h"

namespace muster::agent {
namespace {

constexpr int kRan = 0;
constexpr int kNoRight = 200;  // of the test, to arrange what it wants to see

// What execve in a child answers.
int try_to_run(const std::string& path) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::execl(path.c_str(), "it", nullptr);
    ::_exit(errno);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  return WEXITSTATUS(status);
}

struct Files {
  muster::testing::TempDir dir;

  std::string path(const std::string& name) const { return dir.path() + "/" + name; }

  std::string put(const std::string& name, const std::string& content, mode_t mode = 0755) const {
    const std::string whole = path(name);
    std::ofstream(whole, std::ios::binary) << content;
    REQUIRE(::chmod(whole.c_str(), mode) == 0);
    return whole;
  }
};

// "why" of "path: why", for the file as execve sees it; the number must be `error`.
std::string why(const std::string& path, int error) {
  REQUIRE(try_to_run(path) == error);
  const std::string text = explain_exec(path, error);
  REQUIRE(text.starts_with(path + ": "));
  return text.substr(path.size() + 2);
}

// A binary that ends at once, of 64 bits, for `machine`, with `loader` if it is not empty.
std::string binary(unsigned machine, const std::string& loader = "") {
  Elf64_Ehdr file{};
  std::memcpy(file.e_ident, ELFMAG, SELFMAG);
  file.e_ident[EI_CLASS] = ELFCLASS64;
  file.e_ident[EI_DATA] = ELFDATA2LSB;
  file.e_ident[EI_VERSION] = EV_CURRENT;
  file.e_type = ET_EXEC;
  file.e_machine = static_cast<Elf64_Half>(machine);
  file.e_version = EV_CURRENT;
  file.e_phoff = sizeof file;
  file.e_ehsize = sizeof file;
  file.e_phentsize = sizeof(Elf64_Phdr);
  file.e_phnum = loader.empty() ? 0 : 1;
  Elf64_Phdr part{};
  part.p_type = PT_INTERP;
  part.p_offset = sizeof file + sizeof part;
  part.p_filesz = loader.size() + 1;
  std::string text(reinterpret_cast<const char*>(&file), sizeof file);
  text.append(reinterpret_cast<const char*>(&part), sizeof part);
  return text + loader + '\0';
}

unsigned own_machine() {
  std::ifstream self("/proc/self/exe", std::ios::binary);
  Elf64_Ehdr file{};
  self.read(reinterpret_cast<char*>(&file), sizeof file);
  return file.e_machine;
}

std::string own_name() {
  utsname names{};
  REQUIRE(::uname(&names) == 0);
  return names.machine;
}

}  // namespace

TEST_CASE("a file that is not there, or a link to nothing") {
  const Files files;
  CHECK(why(files.path("none"), ENOENT) == "No such file or directory");
  REQUIRE(::symlink("../gone", files.path("link").c_str()) == 0);
  CHECK(why(files.path("link"), ENOENT) == "it is a link to ../gone, which is not there");
}

TEST_CASE("the interpreter of a script is named") {
  const Files files;
  CHECK(why(files.put("a", "#!/no/such/python3 -u\nx\n"), ENOENT) ==
        "its interpreter, which the #! line names, does not exist: /no/such/python3");
  CHECK(why(files.put("b", "#! \t /no/such/python3\n"), ENOENT) ==
        "its interpreter, which the #! line names, does not exist: /no/such/python3");
  // A script may be another's interpreter: the one that is missing is named.
  const std::string inner = files.put("inner", "#!/no/such/shell\n");
  CHECK(why(files.put("outer", "#!" + inner + "\n"), ENOENT) ==
        "its interpreter, which the #! line names, does not exist: /no/such/shell");
}

TEST_CASE("line ends of another system are told as such") {
  const Files files;
  const std::string text = why(files.put("dos", "#!/bin/sh\r\necho\r\n"), ENOENT);
  CHECK(text.starts_with("its first line, #!/bin/sh, ends in a carriage return"));
  CHECK(text.find("dos2unix") != std::string::npos);
  CHECK(text.find('\r') == std::string::npos);
  CHECK(try_to_run(files.put("unix", "#!/bin/sh\nexit 0\n")) == kRan);
}

TEST_CASE("a binary for another C library names the loader that is missing") {
  const Files files;
  CHECK(why(files.put("musl", binary(own_machine(), "/lib/ld-nowhere.so.1")), ENOENT) ==
        "the dynamic loader it was linked for does not exist: /lib/ld-nowhere.so.1");
}

TEST_CASE("permission denied: why") {
  const Files files;
  const std::string denied = "Permission denied ";
  CHECK(why(files.put("plain", "#!/bin/sh\n", 0644), EACCES) ==
        denied + "(it is not executable: chmod +x)");
  CHECK(why(files.dir.path(), EACCES) == denied + "(it is a folder)");
  REQUIRE(::mkfifo(files.path("pipe").c_str(), 0755) == 0);
  CHECK(why(files.path("pipe"), EACCES) == denied + "(it is not a regular file)");
  const std::string inner = files.put("inner", "#!/bin/sh\n", 0644);
  CHECK(why(files.put("outer", "#!" + inner + "\n"), EACCES) ==
        denied + "(its interpreter, " + inner + ": it is not executable: chmod +x)");
}

TEST_CASE("permission denied by a mount without execution") {
  const Files files;
  const std::string folder = files.path("mount");
  REQUIRE(::mkdir(folder.c_str(), 0755) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const bool mounted = ::unshare(CLONE_NEWNS) == 0 &&
                         ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                         ::mount("none", folder.c_str(), "tmpfs", MS_NOEXEC, nullptr) == 0;
    if (!mounted) ::_exit(kNoRight);
    const std::string path = folder + "/script";
    std::ofstream(path) << "#!/bin/sh\n";
    ::chmod(path.c_str(), 0755);
    const std::string wanted = path +
                               ": Permission denied (it lies on a file system that is mounted "
                               "noexec)";
    ::execl(path.c_str(), "it", nullptr);
    ::_exit(errno == EACCES && explain_exec(path, EACCES) == wanted ? 1 : 2);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  if (WEXITSTATUS(status) == kNoRight) {
    WARN("no right to mount: a noexec file system is not tested");
  } else {
    CHECK(WEXITSTATUS(status) == 1);
  }
}

TEST_CASE("a file that is no program of this machine: why") {
  const Files files;
  const std::string format = "Exec format error ";
  CHECK(why(files.put("empty", ""), ENOEXEC) == format + "(it is empty)");
  CHECK(why(files.put("text", "echo hello\n"), ENOEXEC) ==
        format + "(neither a binary of this machine nor a script with a #! line)");
  CHECK(why(files.put("other", binary(EM_S390)), ENOEXEC) ==
        format + "(a binary for s390x, this machine is " + own_name() + ")");
  CHECK(why(files.put("cut", std::string(ELFMAG, SELFMAG) + "\2\1\1"), ENOEXEC) ==
        format + "(a binary that is cut short)");
}

TEST_CASE("what the file does not tell is left to the system's words") {
  CHECK(explain_exec("./x", E2BIG).starts_with("./x: Argument list too long (its arguments and"));
  CHECK(explain_exec("./x", E2BIG).find("ulimit -s") != std::string::npos);
  CHECK(explain_exec("./x", EMFILE).find("ulimit -n") != std::string::npos);
  // Changed meanwhile: the number alone is known.
  CHECK(explain_exec("/bin/sh", ENOENT) == "/bin/sh: No such file or directory");
  CHECK(explain_exec("/bin/sh", EACCES) == "/bin/sh: Permission denied");
}

}  // namespace muster::agent
