// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/remove_tree.h"

#include <cerrno>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/shell/unique_fd.h"

namespace muster::agent {
namespace {

// One descriptor a level: no workers' folders are that deep, and the limit is not ours to use up.
constexpr int kDeepest = 128;
constexpr int kFolderFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

// The folder opened for reading, with all rights for us; invalid where that cannot be.
UniqueFd open_folder(int parent, const char* name) {
  UniqueFd folder(::openat(parent, name, kFolderFlags));
  if (!folder.valid() && errno == EACCES) {
    // fchmod wants a descriptor that can be read, chmod by name would follow a link.
    const UniqueFd place(::openat(parent, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!place.valid()) return {};
    const std::string itself = "/proc/self/fd/" + std::to_string(place.get());
    if (::chmod(itself.c_str(), S_IRWXU) != 0) return {};
    folder.reset(::openat(parent, name, kFolderFlags));
  }
  if (!folder.valid()) return folder;
  struct stat info {};
  if (::fstat(folder.get(), &info) != 0) return {};
  if ((info.st_mode & S_IRWXU) != S_IRWXU) ::fchmod(folder.get(), S_IRWXU);
  return folder;
}

bool remove_at(int parent, const char* name, int depth);

// Everything in the folder. Only what is on the same device: a mount has an owner of its own.
void empty_folder(UniqueFd folder, int depth) {
  const int fd = folder.get();
  DIR* entries = ::fdopendir(fd);
  if (entries == nullptr) return;
  static_cast<void>(folder.release());  // closedir closes it
  while (const dirent* entry = ::readdir(entries)) {
    if (std::strcmp(entry->d_name, ".") == 0 || std::strcmp(entry->d_name, "..") == 0) continue;
    remove_at(fd, entry->d_name, depth + 1);
  }
  ::closedir(entries);
}

bool is_mount(int parent, int folder) {
  struct stat outside {};
  struct stat inside {};
  return ::fstat(parent, &outside) != 0 || ::fstat(folder, &inside) != 0 ||
         outside.st_dev != inside.st_dev;
}

bool remove_at(int parent, const char* name, int depth) {
  if (::unlinkat(parent, name, 0) == 0 || errno == ENOENT) return true;
  if (errno != EISDIR && errno != EPERM) return false;
  if (::unlinkat(parent, name, AT_REMOVEDIR) == 0 || errno == ENOENT) return true;
  if (depth > kDeepest) return false;
  UniqueFd folder = open_folder(parent, name);
  if (!folder.valid() || is_mount(parent, folder.get())) return false;
  empty_folder(std::move(folder), depth);
  return ::unlinkat(parent, name, AT_REMOVEDIR) == 0 || errno == ENOENT;
}

}  // namespace

bool remove_tree_at(int parent, const char* name) {
  return remove_at(parent, name, 0);
}

}  // namespace muster::agent
