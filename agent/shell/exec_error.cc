// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/exec_error.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <elf.h>
#include <fcntl.h>
#include <optional>
#include <string_view>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <utility>

#include "agent/shell/unique_fd.h"
#include "proto/base/job.h"

namespace muster::agent {
namespace {

// What the kernel looks at (BINPRM_BUF_SIZE): a #! line ends here at the latest.
constexpr std::size_t kLineBytes = 256;
constexpr std::size_t kHeadBytes = 4096;
// A script's interpreter may be a script; the kernel follows four.
constexpr int kDepth = 4;
// execve(2).
constexpr const char* kTooLong =
    "its arguments and environment: one string may have 128 KiB, all together a quarter of "
    "ulimit -s";

std::optional<struct stat> look(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return std::nullopt;
  return info;
}

// The beginning of a regular file; nullopt: not readable.
std::optional<std::string> head_of(const std::string& path) {
  const auto info = look(path);
  if (!info || !S_ISREG(info->st_mode)) return std::nullopt;
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!file.valid()) return std::nullopt;
  std::string head(kHeadBytes, '\0');
  const ssize_t count = ::pread(file.get(), head.data(), head.size(), 0);
  if (count < 0) return std::nullopt;
  head.resize(static_cast<std::size_t>(count));
  return head;
}

// The program that a #! line names, as the kernel reads it; nullopt: there is no such line.
std::optional<std::string> named_interpreter(std::string_view head) {
  if (!head.starts_with("#!")) return std::nullopt;
  std::string_view line = head.substr(2, std::min(head.find('\n'), kLineBytes) - 2);
  line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
  return std::string(line.substr(0, line.find_first_of(" \t")));
}

template <typename Header>
std::optional<Header> read_at(std::string_view bytes, std::size_t at) {
  if (at > bytes.size() || bytes.size() - at < sizeof(Header)) return std::nullopt;
  Header header;
  std::memcpy(&header, bytes.data() + at, sizeof header);
  return header;
}

bool is_elf(std::string_view head) {
  return head.size() > EI_CLASS && head.starts_with(std::string_view(ELFMAG, SELFMAG));
}

// The dynamic loader that a binary of this machine's word length names; nullopt: none is seen.
std::optional<std::string> loader(std::string_view head) {
  if (!is_elf(head) || head[EI_CLASS] != ELFCLASS64) return std::nullopt;
  const auto file = read_at<Elf64_Ehdr>(head, 0);
  if (!file || file->e_phentsize != sizeof(Elf64_Phdr)) return std::nullopt;
  for (std::size_t i = 0; i < file->e_phnum; ++i) {
    const auto part = read_at<Elf64_Phdr>(head, file->e_phoff + i * sizeof(Elf64_Phdr));
    if (!part) return std::nullopt;
    if (part->p_type != PT_INTERP) continue;
    if (part->p_offset > head.size() || part->p_filesz > head.size() - part->p_offset)
      return std::nullopt;
    const std::string_view name = head.substr(part->p_offset, part->p_filesz);
    return std::string(name.substr(0, name.find('\0')));
  }
  return std::nullopt;
}

std::string machine_name(unsigned number) {
  static constexpr std::array<std::pair<unsigned, std::string_view>, 9> kMachines{
      {{EM_386, "32-bit x86"},
       {EM_ARM, "32-bit ARM"},
       {EM_X86_64, "x86_64"},
       {EM_AARCH64, "aarch64"},
       {EM_PPC64, "ppc64"},
       {EM_S390, "s390x"},
       {EM_RISCV, "riscv64"},
       {EM_MIPS, "MIPS"},
       {258, "LoongArch"}}};
  for (const auto& [value, name] : kMachines) {
    if (value == number) return std::string(name);
  }
  return "another machine (ELF number " + std::to_string(number) + ")";
}

std::string this_machine() {
  utsname names{};
  return ::uname(&names) == 0 ? names.machine : "unknown";
}

// ------------------------------------------------------------------ one errno value each

std::string why_missing(const std::string& path, int depth) {
  struct stat link {};
  if (!look(path)) {
    if (::lstat(path.c_str(), &link) != 0 || !S_ISLNK(link.st_mode)) return "";
    std::string target(4096, '\0');
    const ssize_t length = ::readlink(path.c_str(), target.data(), target.size());
    target.resize(length < 0 ? 0 : static_cast<std::size_t>(length));
    return "it is a link to " + target + ", which is not there";
  }
  const auto head = head_of(path);
  if (!head) return "";
  if (auto name = named_interpreter(*head)) {
    if (name->ends_with('\r')) {
      name->pop_back();
      return "its first line, #!" + *name +
             ", ends in a carriage return, which counts as part of the name: write the file with "
             "Unix line ends (dos2unix)";
    }
    if (!look(*name)) return "its interpreter, which the #! line names, does not exist: " + *name;
    return depth < kDepth ? why_missing(*name, depth + 1) : "";
  }
  const auto name = loader(*head);
  if (!name || look(*name)) return "";
  return "the dynamic loader it was linked for does not exist: " + *name;
}

std::string why_refused(const std::string& path, int depth) {
  const auto info = look(path);
  if (!info) return errno == EACCES ? "a folder on its path may not be entered" : "";
  if (S_ISDIR(info->st_mode)) return "it is a folder";
  if (!S_ISREG(info->st_mode)) return "it is not a regular file";
  // With root's rights too: one of the three bits is needed.
  if (::access(path.c_str(), X_OK) != 0 && errno == EACCES) {
    const bool others_may = (info->st_mode & (S_IXUSR | S_IXGRP | S_IXOTH)) != 0;
    struct statvfs place {};
    if (::statvfs(path.c_str(), &place) == 0 && (place.f_flag & ST_NOEXEC) != 0) {
      return "it lies on a file system that is mounted noexec";
    }
    return others_may ? "this user may not execute it" : "it is not executable: chmod +x";
  }
  const auto head = head_of(path);
  if (!head || depth == kDepth) return "";
  auto name = named_interpreter(*head);
  if (!name) name = loader(*head);
  if (!name) return "";
  const std::string why = why_refused(*name, depth + 1);
  return why.empty() ? "" : "its interpreter, " + *name + ": " + why;
}

std::string why_no_format(const std::string& path) {
  const auto head = head_of(path);
  if (!head) return "";
  if (head->empty()) return "it is empty";
  if (!is_elf(*head)) return "neither a binary of this machine nor a script with a #! line";
  const auto file = read_at<Elf64_Ehdr>(*head, 0);  // both classes are alike up to e_machine
  if (!file) return "a binary that is cut short";
  const std::string theirs = machine_name(file->e_machine);
  const std::string ours = this_machine();
  if (theirs != ours) return "a binary for " + theirs + ", this machine is " + ours;
  if (file->e_type != ET_EXEC && file->e_type != ET_DYN) return "an object file, not a program";
  return "a damaged binary";
}

}  // namespace

std::string explain_exec(const std::string& path, int error) {
  std::string why;
  switch (error) {
    case ENOENT: why = why_missing(path, 0); break;
    case EACCES: why = why_refused(path, 0); break;
    case ENOEXEC: why = why_no_format(path); break;
    case E2BIG: why = kTooLong; break;
    default: why = limit_words(error); break;
  }
  // For a file that is there the system's words would only mislead.
  if (error == ENOENT && !why.empty()) return path + ": " + why;
  return path + ": " + std::strerror(error) + (why.empty() ? "" : " (" + why + ")");
}

}  // namespace muster::agent
