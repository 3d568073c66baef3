// SPDX-License-Identifier: Apache-2.0
//
// The few file operations that checkpoints are made of, behind a seam: a test can end the process
// or fail the call at any one of them. The real implementation is POSIX.
//
// Thread rule: one thread per object at a time; every call blocks on the storage.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace muster::runtime {

// A file that is being written, from its start to its end. Destroying it closes it.
class WritableFile {
 public:
  virtual ~WritableFile() = default;
  virtual absl::Status write(std::span<const std::byte> bytes) = 0;
  // Returns when the bytes are on stable storage.
  virtual absl::Status sync() = 0;
  virtual absl::Status close() = 0;
};

// Errors of all calls name the path and the system's reason: kNotFound, kAlreadyExists (also: a
// directory in the way is not empty), kPermissionDenied, kResourceExhausted (no space, quota, no
// descriptors), kInternal for the rest.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // kAlreadyExists if there is one: nothing is ever written over.
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> create(const std::string& path) = 0;
  // With its parents; fine if it is there.
  virtual absl::Status make_directories(const std::string& path) = 0;
  // Replaces a file or an empty directory `to`, atomically.
  virtual absl::Status rename(const std::string& from, const std::string& to) = 0;
  // Returns when names made and renamed in the directory are on stable storage.
  virtual absl::Status sync_directory(const std::string& path) = 0;
  virtual absl::Status remove_file(const std::string& path) = 0;
  virtual absl::Status remove_directory(const std::string& path) = 0;

  // Names in a directory, sorted, without "." and "..".
  virtual absl::StatusOr<std::vector<std::string>> list(const std::string& path) = 0;
  // Of a regular file. kDataLoss: something else has the name (a directory, a device, a loop of
  // links).
  virtual absl::StatusOr<std::vector<std::byte>> read(const std::string& path) = 0;
};

// The real one.
FileSystem& posix_file_system();

// Writes `text` as `path` so that a reader sees the old or the new file, never a part: a file
// beside it (`path` + ".tmp-" + `nonce`), synced, renamed over it, the directory synced.
absl::Status replace_file(FileSystem& files, const std::string& path, const std::string& text,
                          const std::string& nonce);

// Removes a directory and the plain files in it (manifest.json first, so that what is left after
// an interruption is plainly incomplete). Fine if it is gone.
absl::Status remove_flat_directory(FileSystem& files, const std::string& path);

}  // namespace muster::runtime
