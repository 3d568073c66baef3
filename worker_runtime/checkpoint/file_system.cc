// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/checkpoint/file_system.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace muster::runtime {
namespace {

absl::Status error_of(const std::string& path, const std::string& what, int error) {
  const std::string text = path + ": " + what + ": " + std::strerror(error);
  switch (error) {
    case ENOENT:
    case ENOTDIR: return absl::NotFoundError(text);
    case EEXIST:
    case ENOTEMPTY: return absl::AlreadyExistsError(text);
    case EACCES:
    case EPERM:
    case EROFS: return absl::PermissionDeniedError(text);
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE: return absl::ResourceExhaustedError(text);
    default: return absl::InternalError(text);
  }
}

class PosixFile : public WritableFile {
 public:
  PosixFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  ~PosixFile() override {
    if (fd_ >= 0) ::close(fd_);
  }
  PosixFile(const PosixFile&) = delete;
  PosixFile& operator=(const PosixFile&) = delete;

  absl::Status write(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const ssize_t put = ::write(fd_, bytes.data(), bytes.size());
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) return error_of(path_, "cannot write", errno);
      bytes = bytes.subspan(static_cast<std::size_t>(put));
    }
    return absl::OkStatus();
  }

  absl::Status sync() override {
    return ::fsync(fd_) == 0 ? absl::OkStatus() : error_of(path_, "cannot sync", errno);
  }

  absl::Status close() override {
    const int fd = std::exchange(fd_, -1);
    return ::close(fd) == 0 ? absl::OkStatus() : error_of(path_, "cannot close", errno);
  }

 private:
  std::string path_;
  int fd_;
};

class PosixFileSystem : public FileSystem {
 public:
  absl::StatusOr<std::unique_ptr<WritableFile>> create(const std::string& path) override {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) return error_of(path, "cannot create", errno);
    return std::make_unique<PosixFile>(path, fd);
  }

  absl::Status make_directories(const std::string& path) override {
    for (std::size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
      const std::string prefix = path.substr(0, end);
      if (::mkdir(prefix.c_str(), 0777) != 0 && errno != EEXIST) {
        return error_of(prefix, "cannot make the directory", errno);
      }
      if (end == std::string::npos) break;
    }
    struct stat facts {};
    if (::stat(path.c_str(), &facts) != 0) return error_of(path, "cannot stat", errno);
    return S_ISDIR(facts.st_mode) ? absl::OkStatus() : error_of(path, "cannot use", ENOTDIR);
  }

  absl::Status rename(const std::string& from, const std::string& to) override {
    return ::rename(from.c_str(), to.c_str()) == 0
               ? absl::OkStatus()
               : error_of(from, "cannot rename to " + to, errno);
  }

  absl::Status sync_directory(const std::string& path) override {
    const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return error_of(path, "cannot open", errno);
    // Some network file systems know no fsync of directories; they order names themselves.
    const int error = ::fsync(fd) == 0 || errno == EINVAL ? 0 : errno;
    ::close(fd);
    return error == 0 ? absl::OkStatus() : error_of(path, "cannot sync", error);
  }

  absl::Status remove_file(const std::string& path) override {
    return ::unlink(path.c_str()) == 0 ? absl::OkStatus() : error_of(path, "cannot remove", errno);
  }

  absl::Status remove_directory(const std::string& path) override {
    return ::rmdir(path.c_str()) == 0 ? absl::OkStatus() : error_of(path, "cannot remove", errno);
  }

  absl::StatusOr<std::vector<std::string>> list(const std::string& path) override {
    const std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(path.c_str()), &::closedir);
    if (!dir) return error_of(path, "cannot open", errno);
    std::vector<std::string> names;
    for (;;) {
      errno = 0;
      const dirent* entry = ::readdir(dir.get());
      if (entry == nullptr) break;
      std::string name = static_cast<const char*>(entry->d_name);
      if (name != "." && name != "..") names.push_back(std::move(name));
    }
    if (errno != 0) return error_of(path, "cannot list", errno);
    std::sort(names.begin(), names.end());
    return names;
  }

  absl::StatusOr<std::vector<std::byte>> read(const std::string& path) override {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 && (errno == ELOOP || errno == ENXIO)) {
      return absl::DataLossError(path + ": cannot open: " + std::strerror(errno));
    }
    if (fd < 0) return error_of(path, "cannot open", errno);
    // A device may never end, a pipe may never begin.
    struct stat facts {};
    if (::fstat(fd, &facts) != 0 || !S_ISREG(facts.st_mode)) {
      ::close(fd);
      return absl::DataLossError(path + (S_ISDIR(facts.st_mode) ? ": is a directory, not a file"
                                                                : ": is not a regular file"));
    }
    constexpr std::size_t kChunk = std::size_t{1} << 20U;
    std::vector<std::byte> bytes;
    std::size_t filled = 0;
    for (;;) {
      bytes.resize(filled + kChunk);
      const ssize_t got = ::read(fd, bytes.data() + filled, kChunk);
      if (got < 0 && errno == EINTR) continue;
      const int error = got < 0 ? errno : 0;
      if (got > 0) {
        filled += static_cast<std::size_t>(got);
        continue;
      }
      ::close(fd);
      if (error != 0) return error_of(path, "cannot read", error);
      bytes.resize(filled);
      return bytes;
    }
  }
};

}  // namespace

FileSystem& posix_file_system() {
  static PosixFileSystem files;
  return files;
}

absl::Status replace_file(FileSystem& files, const std::string& path, const std::string& text,
                          const std::string& nonce) {
  const std::string beside = path + ".tmp-" + nonce;
  auto file = files.create(beside);
  if (!file.ok()) return file.status();
  absl::Status status = (*file)->write(std::as_bytes(std::span(text)));
  if (status.ok()) status = (*file)->sync();
  if (status.ok()) status = (*file)->close();
  if (status.ok()) status = files.rename(beside, path);
  if (!status.ok()) {
    files.remove_file(beside).IgnoreError();  // the first error is the one to tell
    return status;
  }
  const std::size_t slash = path.rfind('/');
  return files.sync_directory(slash == std::string::npos ? "." : path.substr(0, slash));
}

absl::Status remove_flat_directory(FileSystem& files, const std::string& path) {
  // Of a link to a directory the link goes, not what it leads to; a directory is no file.
  const absl::Status as_file = files.remove_file(path);
  if (as_file.ok() || absl::IsNotFound(as_file)) return absl::OkStatus();
  auto names = files.list(path);
  if (absl::IsNotFound(names.status())) return absl::OkStatus();
  if (!names.ok()) return names.status();
  std::stable_partition(names->begin(), names->end(),
                        [](const std::string& name) { return name == "manifest.json"; });
  for (const std::string& name : *names) {
    absl::Status status = files.remove_file(path + "/" + name);
    if (absl::IsNotFound(status)) continue;
    // Not of our making, but an empty directory is nobody's loss.
    if (!status.ok() && files.remove_directory(path + "/" + name).ok()) continue;
    if (!status.ok()) return status;
  }
  const absl::Status status = files.remove_directory(path);
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

}  // namespace muster::runtime
